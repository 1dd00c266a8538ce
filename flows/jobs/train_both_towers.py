"""Stage I of train-towers: both towers from the triplets of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import yaml

from darklode.flows.executor import executor
from darklode.flows.jobs.adapt_encoder import contents, open_base, place
from darklode.flows.runs import ADAPTED, SETTINGS, STAGE, note, read_inputs
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.duckdb_views import views_sql
from darklode.pipeline.evaluate.stage import EVALUATE, evaluate
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.evaluation import MEASURES, SYSTEMS, TESTED, rank_test_queries
from darklode.pipeline.towers.dual.sources import TopicalSource
from darklode.pipeline.towers.dual.stage import TRAINED, DualInputs, follow_leader, train_both
from darklode.pipeline.towers.dual.triplets import TRIPLETS, tower_triplets
from darklode.pipeline.train.data.pairs import PAIRS, adaptation_pairs
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.distributed import demand_whole
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.schemas.settings import Settings


def train_both_towers(runs: Sequence[str], encoder: str, out: str, settings: dict[str, Any] | None = None) -> str:
    """Train a query and a document tower together, and measure what they find.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; settings start from those of the first.
        encoder: what both begin as: a name among the settings' encoders, or a sentence-transformers model.
        out: folder or s3:// prefix of the towers.
        settings: what differs from the first run's own settings.

    Returns:
        What was reached.

    Raises:
        MissingPart: a model or a package is missing.
        SettingsError: accelerate is to share the models out among processes.
    """
    base, chosen = _given(runs, encoder, settings or {})
    run = place(out)
    with run.lock():
        note(run, {ADAPTED: list(runs), "encoder": encoder, STAGE: 1})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        for step in steps(base, chosen):
            run_step(run, step)
        return hand_over(run, base, chosen, list(runs))


def go_along_with(runs: Sequence[str], encoder: str, out: str, settings: dict[str, Any] | None = None) -> None:
    """What a further process does where several train: it takes the steps along, and writes nothing.

    Args:
        runs: as for `train_both_towers`, and the rest, too.
        encoder: likewise.
        out: likewise.
        settings: likewise.
    """
    base, chosen = _given(runs, encoder, settings or {})
    lora = chosen.adapt.only("lora_rank", "lora_alpha", "target_modules")
    follow_leader(Run(out), chosen.dual, lora, _load_inputs(base, chosen), seed=chosen.seed)


def _given(runs: Sequence[str], encoder: str, settings: dict[str, Any]) -> tuple[BaseEncoder, Settings]:
    made = [read_inputs(Run(url)) for url in runs]
    chosen = made[0].with_overrides(settings)
    check_parts(chosen.dual.method)
    demand_whole()
    return topical(open_base(runs, made, encoder, chosen)), chosen


def topical(base: BaseEncoder) -> BaseEncoder:
    """The base, whose runs' texts show their topics."""
    sources = tuple(
        TopicalSource(source.run, source.number, source.mined, source.text_characters) for source in base.sources
    )
    return replace(base, sources=sources)


def steps(base: BaseEncoder, settings: Settings) -> list[Step]:
    """The stages, in data order."""
    seed, begins = settings.seed, _load_inputs(base, settings)
    dual, lora = settings.dual, settings.adapt.only("lora_rank", "lora_alpha", "target_modules")
    measuring = settings.evaluate.model_copy(update={"measures": MEASURES})
    return [
        Step(
            PAIRS,
            call(adaptation_pairs, settings.adapt.only("tenant", "sources", "min_probability")),
            lambda: contents(base),
            source=base.sources,
        ),
        triplets_step(base, settings),
        Step(TRAINED, call(train_both, dual, lora, begins, seed=seed), lambda: contents(base)),
        Step(
            TESTED,
            call(
                rank_test_queries,
                dual.only("method", "query_tower_layers", "matryoshka_dims", "views", "prompt"),
                lora,
                base,
                begins,
            ),
        ),
        Step(
            EVALUATE,
            call(evaluate, measuring.only("measures", "n_resamples", "permutations"), systems=list(SYSTEMS), seed=seed),
        ),
    ]


def triplets_step(base: BaseEncoder, settings: Settings) -> Step:
    """What both towers learn from, of a base whose texts show their topics."""
    call_arguments = call(tower_triplets, base.sources, seed=settings.seed)
    return Step(TRIPLETS, call_arguments, lambda: contents(base), untracked=("sources",))


def _load_inputs(base: BaseEncoder, settings: Settings) -> DualInputs:
    return DualInputs(cast(SentenceTransformersSettings, base.encoder), base.sources, settings.dual.prompt)


def hand_over(run: Run, base: BaseEncoder, settings: Settings, sources: list[str]) -> str:
    """Write the folder that one takes home, the card and the views; returns what was reached."""
    from darklode.pipeline.towers.dual import FOLDER
    from darklode.pipeline.towers.dual.card import card
    from darklode.pipeline.towers.dual.folder import save, sentence

    begins = _load_inputs(base, settings)
    save(run, begins, settings.dual, settings.adapt)
    run.store.write("views.sql", views_sql(run).encode())
    text = card(run, settings, begins, sources)
    run.store.write("README.md", text)
    executor().show(run, text.decode)
    return f"{run.store.url}/{FOLDER}: {sentence(run.tables())}."
