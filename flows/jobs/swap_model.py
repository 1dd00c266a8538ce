"""swap-model: search an existing index with the queries of a new encoder, through a map between their spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from darklode.flows.jobs.adapt_encoder import open_base, pairs_step, unopened_base
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.jobs.train_towers import query_steps
from darklode.flows.report import write_report
from darklode.flows.runs import output_run, read_runs, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import NoLift, SettingsError
from darklode.pipeline.model_swap.encoder_pair import EncoderPair
from darklode.pipeline.model_swap.evaluation import SWAP_TEST_STAGE, measure_maps
from darklode.pipeline.model_swap.sample import MIN_TEXTS, SAMPLE_STAGE, heat_inputs, sample_texts
from darklode.pipeline.model_swap.stage import FIT_STAGE, fit
from darklode.pipeline.model_swap.verdict import (
    SWAP_VERDICT_STAGE,
    decide,
    is_shipped,
    require_share,
)
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.held_out import CLUSTERS
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.schemas.adaptation import MIN_SHARE, SAMPLE_TEXTS
from darklode.schemas.run_inputs import ModelSwapInputs
from darklode.schemas.settings import Settings

EVAL_QUERIES = 1000
"""Maximum number of queries for selection, and of those held out beside the test queries."""


def swap_model(  # noqa: PLR0913 (the parameters of the Prefect flow)
    run: str,
    new_encoder: str,
    index_encoder: str,
    out: str,
    settings: dict[str, Any] | None = None,
    *,
    min_share: float = MIN_SHARE,
    sample: int = SAMPLE_TEXTS,
    queries: Sequence[str] = (),
) -> str:
    """Learn a map from a new encoder's queries to an index, and test how much of re-embedding it saves.

    Args:
        run: folder or s3:// prefix of a build or a mined run; its labels are only used to measure.
        new_encoder: encoder of the queries to come: name in the settings, or a sentence-transformers model.
        index_encoder: encoder of the index, in the same forms.
        out: folder or s3:// prefix of the mapped encoder.
        settings: overrides of the run's settings.
        min_share: share of re-embedding's first ten results that mapped queries must find.
        sample: maximum number of texts to embed with both encoders.
        queries: files of further queries, in the formats of `build`.

    Returns:
        The decision.

    Raises:
        NoLift: the share is not reached, so nothing is released.
        SettingsError: one of them is no sentence-transformers encoder, both are the same, or an option is out of range.
        ArtifactError: there are too few queries.
    """
    if not 0 <= min_share <= 1:
        raise SettingsError(f"min_share {min_share}: must be between 0 and 1")
    if sample < MIN_TEXTS:
        raise SettingsError(f"sample {sample}: must be at least {MIN_TEXTS}")
    records = read_runs([run])
    resolved = records[0].with_overrides(settings or {})
    pair = EncoderPair(open_base(records, index_encoder, resolved), open_base(records, new_encoder, resolved))
    old, new = pair.old.encoder, pair.new.encoder
    assert isinstance(old, SentenceTransformersSettings)
    assert isinstance(new, SentenceTransformersSettings)
    if old.encoder_id() == new.encoder_id():
        raise SettingsError(f"--from and --onto are the same encoder, {old.encoder_id()}: there is nothing to map")
    output = output_run(out, ModelSwapInputs)
    with output.lock():
        inputs = ModelSwapInputs(runs=[run], encoder=index_encoder, new_encoder=new_encoder, queries=list(queries))
        write_run(output, inputs, resolved)
        for step in steps(pair, list(queries), resolved, min_share=min_share, sample=sample):
            if step.stage is FIT_STAGE and not step.plan(output).is_up_to_date:
                _check_saving(output, pair.new, new)
            run_step(output, step)
        hand_over(output, pair, old, new, resolved, run)
    return require_share(output)


def steps(
    pair: EncoderPair, files: list[str], settings: Settings, *, min_share: float = MIN_SHARE, sample: int = SAMPLE_TEXTS
) -> list[Step]:
    """The steps in data order."""
    seed = settings.seed
    return [
        # The map is for the queries of this index: no source is held out as a whole, and passages are no queries.
        *query_steps(pair.old, files, settings, held_out=EVAL_QUERIES, hold_out=CLUSTERS, with_passages=False),
        pairs_step(pair.old, settings),
        Step(SAMPLE_STAGE, call(sample_texts, pair, sample=sample, seed=seed), lambda: heat_inputs(pair)),
        Step(FIT_STAGE, call(fit, pair, seed=seed)),
        Step(SWAP_TEST_STAGE, call(measure_maps, pair, seed=seed)),
        Step(SWAP_VERDICT_STAGE, call(decide, min_share=min_share)),
    ]


def _check_saving(output: Run, base: BaseEncoder, new: SentenceTransformersSettings) -> None:
    """Check before fitting that the new encoder's vectors can be reproduced by a saved folder."""
    from darklode.pipeline.train.release.folder import require_reproducible

    require_reproducible(base, new, output.tables("adaptation_queries"))


def hand_over(
    output: Run,
    pair: EncoderPair,
    old: SentenceTransformersSettings,
    new: SentenceTransformersSettings,
    settings: Settings,
    source: str,
) -> None:
    """Write the encoder and its record if it is released, else remove an earlier one; card, views and report."""
    from darklode.pipeline.model_swap import folder
    from darklode.pipeline.model_swap.card import card

    if is_shipped(output.tables("swap_verdict")):
        folder.save(output, pair, new)
        folder.write_record(output, pair, old)
    else:
        folder.remove(output)
    publish(output, card(output, settings, {"new": new, "old": old}, source))
    write_report(output)


def _planned_steps(_run: Run, inputs: ModelSwapInputs, settings: Settings) -> list[Step]:
    pair = EncoderPair(unopened_base(inputs.encoder, settings), unopened_base(inputs.new_encoder, settings))
    return steps(pair, inputs.queries, settings)


JOB = Job(
    "swap-model",
    swap_model,
    ModelSwapInputs,
    _planned_steps,
    sections=("model_swap", "encoder_swap", *RUN_SECTIONS),
    refusals=(NoLift,),
)
