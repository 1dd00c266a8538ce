"""Stage 1 of train-towers: both towers from the triplets of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from darklode.flows.jobs.adapt_encoder import contents, open_base
from darklode.flows.runs import output_run, read_runs, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.evaluate.stage import EVALUATION_STAGE, evaluate
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.evaluation import DUAL_TEST_STAGE, MEASURES, SYSTEMS, rank_test_queries
from darklode.pipeline.towers.dual.sources import TopicalSource
from darklode.pipeline.towers.dual.stage import DUAL_TRIALS_STAGE, DualInputs, follow_leader, train_both
from darklode.pipeline.towers.dual.triplets import TRIPLETS_STAGE, tower_triplets
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.pairs import PAIRS_STAGE, adaptation_pairs
from darklode.pipeline.train.fit.distributed import require_unsharded
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.schemas.run_inputs import TowersInputs
from darklode.schemas.settings import Settings


def train_both_towers(runs: Sequence[str], encoder: str, out: str, settings: dict[str, Any] | None = None) -> str:
    """Train a query and a document tower together, and evaluate them.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; the first one's settings are the base.
        encoder: initial model of both: name of an encoder in the settings, or a sentence-transformers model.
        out: folder or s3:// prefix of the towers.
        settings: overrides of the first run's settings.

    Returns:
        The result in a sentence.

    Raises:
        MissingPart: a model or a package is missing.
        SettingsError: accelerate is configured to shard the model.
    """
    base, resolved = _open(runs, encoder, settings or {})
    run = output_run(out, TowersInputs)
    with run.lock():
        write_run(run, TowersInputs(runs=list(runs), encoder=encoder, stage=1), resolved)
        for step in steps(base, resolved):
            run_step(run, step)
        return hand_over(run, base, resolved, list(runs))


def train_as_worker(runs: Sequence[str], encoder: str, out: str, settings: dict[str, Any] | None = None) -> None:
    """Take the training steps of a further process of `accelerate launch`; nothing is written.

    Args:
        runs: as for `train_both_towers`.
        encoder: as for `train_both_towers`.
        out: as for `train_both_towers`.
        settings: as for `train_both_towers`.
    """
    base, resolved = _open(runs, encoder, settings or {})
    lora = resolved.adapt.only("lora_rank", "lora_alpha", "target_modules")
    follow_leader(Run(out), resolved.dual, lora, _dual_inputs(base, resolved), seed=resolved.seed)


def _open(runs: Sequence[str], encoder: str, settings: dict[str, Any]) -> tuple[BaseEncoder, Settings]:
    records = read_runs(runs)
    resolved = records[0].with_overrides(settings)
    check_parts(resolved.dual.method)
    require_unsharded()
    return topical(open_base(records, encoder, resolved)), resolved


def topical(base: BaseEncoder) -> BaseEncoder:
    """The base with sources whose texts include their topics."""
    sources = tuple(
        TopicalSource(source.run, source.number, source.mined, source.text_characters) for source in base.sources
    )
    return replace(base, sources=sources)


def steps(base: BaseEncoder, settings: Settings) -> list[Step]:
    """The steps in data order."""
    seed, dual_inputs = settings.seed, _dual_inputs(base, settings)
    dual, lora = settings.dual, settings.adapt.only("lora_rank", "lora_alpha", "target_modules")
    measuring = settings.evaluate.model_copy(update={"measures": MEASURES})
    return [
        Step(
            PAIRS_STAGE,
            call(adaptation_pairs, settings.adapt.only("tenant", "sources", "targets")),
            lambda: contents(base),
            source=base.sources,
        ),
        triplets_step(base, settings),
        Step(DUAL_TRIALS_STAGE, call(train_both, dual, lora, dual_inputs, seed=seed), lambda: contents(base)),
        Step(
            DUAL_TEST_STAGE,
            call(
                rank_test_queries,
                dual.only("method", "query_tower_layers", "matryoshka_dims", "views", "prompt"),
                lora,
                base,
                dual_inputs,
            ),
        ),
        Step(
            EVALUATION_STAGE,
            call(evaluate, measuring.only("measures", "n_resamples", "permutations"), systems=list(SYSTEMS), seed=seed),
        ),
    ]


def triplets_step(base: BaseEncoder, settings: Settings) -> Step:
    """Training triplets of both towers; the base is `topical`."""
    call_arguments = call(tower_triplets, base.sources, seed=settings.seed)
    return Step(TRIPLETS_STAGE, call_arguments, lambda: contents(base), untracked=("sources",))


def _dual_inputs(base: BaseEncoder, settings: Settings) -> DualInputs:
    return DualInputs(cast(SentenceTransformersSettings, base.encoder), base.sources, settings.dual.prompt)


def hand_over(run: Run, base: BaseEncoder, settings: Settings, sources: list[str]) -> str:
    """Write the towers, card and views; returns the result in a sentence."""
    from darklode.pipeline.towers.dual import TOWERS_FOLDER
    from darklode.pipeline.towers.dual.card import card
    from darklode.pipeline.towers.dual.folder import save, sentence

    dual_inputs = _dual_inputs(base, settings)
    save(run, dual_inputs, settings.dual, settings.adapt)
    publish(run, card(run, settings, dual_inputs, sources))
    return f"{run.store.url}/{TOWERS_FOLDER}: {sentence(run.tables())}."
