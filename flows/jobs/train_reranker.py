"""train-reranker: a cross-encoder from the labels of runs, released if it improves a fixed candidate list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from darklode.flows import factories
from darklode.flows.jobs.adapt_encoder import contents, open_base, pairs_step, unopened_base
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.report import write_report
from darklode.flows.runs import output_run, read_runs, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import NoLift, SettingsError
from darklode.pipeline.base.models.loading import fetch_model
from darklode.pipeline.base.models.local import require_tenant
from darklode.pipeline.evaluate.stage import EVALUATION_STAGE
from darklode.pipeline.reranker.candidates import CANDIDATES_STAGE, rerank_candidates
from darklode.pipeline.reranker.evaluation import (
    MEASURES,
    RERANKER_TEST_STAGE,
    evaluate_reranker,
    rank_test_candidates,
)
from darklode.pipeline.reranker.stage import (
    RERANKER_CONTROL_STAGE,
    RERANKER_STAGE,
    train_control,
    train_rerankers,
)
from darklode.pipeline.reranker.training_pairs import RERANKER_PAIRS_STAGE, reranker_pairs
from darklode.pipeline.reranker.verdict import RERANKER_VERDICT_STAGE, decide_reranker, require_gain
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import resolve_tenant
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.schemas.reranker import CANDIDATES
from darklode.schemas.run_inputs import RerankerInputs
from darklode.schemas.settings import Settings


def train_reranker(  # noqa: PLR0913, PLR0917 (the parameters of the Prefect flow)
    runs: Sequence[str],
    base: str,
    out: str,
    settings: dict[str, Any] | None = None,
    encoder: str | None = None,
    candidates: int = CANDIDATES,
    control: bool = False,
) -> str:
    """Train a cross-encoder on the labels of runs, and test whether it improves the candidates' order.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; the first one's settings are the base.
        base: initial model: a cross-encoder, or a bi-encoder, which gets a new head; a name of an encoder in the
            settings, a model's name or a folder.
        out: folder or s3:// prefix of the reranker.
        settings: overrides of the first run's settings.
        encoder: encoder that finds the candidates beside BM25; None: the base, if it is a bi-encoder.
        candidates: candidates per query.
        control: also train a control with shuffled labels.

    Returns:
        The verdict.

    Raises:
        NoLift: no gain is shown, so no reranker is released.
        MissingPart: a model or a package is missing.
        SettingsError: the base is a cross-encoder and no encoder is named.
        DoesNotFit: the base was trained on another tenant's labels.
    """
    from darklode.pipeline.reranker.folder import save_reranker

    records = read_runs(runs)
    resolved = records[0].with_overrides(settings or {})
    check_parts("full")
    initial_model = factories.encoder(base, resolved)
    if not isinstance(initial_model, SentenceTransformersSettings):
        raise SettingsError(f"encoders.{base} is of kind {initial_model.kind}; --base needs a model with its weights")
    fetch_model(initial_model)
    if encoder is None and initial_reranker(initial_model, resolved).is_cross_encoder:
        raise SettingsError(f"{base} is a cross-encoder: name the encoder that finds its candidates with --encoder")
    finder = open_base(records, encoder or base, resolved)
    require_tenant(initial_model, resolve_tenant(list(finder.sources), resolved.adapt.tenant))
    run = output_run(out, RerankerInputs)
    with run.lock():
        inputs = RerankerInputs(
            runs=list(runs), base=base, encoder=encoder or base, candidates=candidates, control=control
        )
        write_run(run, inputs, resolved)
        for step in steps(finder, initial_model, inputs, resolved):
            run_step(run, step)
        save_reranker(run, finder, initial_reranker(initial_model, resolved))
        _write_pages(run, initial_model, resolved, list(runs))
    return require_gain(run)


def initial_reranker(model: SentenceTransformersSettings, settings: Settings) -> Any:
    """The model that training starts from."""
    from darklode.pipeline.reranker.model import InitialReranker

    return InitialReranker(model, settings.seed)


def steps(
    finder: BaseEncoder, model: SentenceTransformersSettings, inputs: RerankerInputs, settings: Settings
) -> list[Step]:
    """The steps in data order.

    Args:
        finder: the encoder that finds the candidates, with the runs.
        model: the initial model.
        inputs: number of candidates, and whether there is a control.
        settings: the settings.
    """
    seed, sources, initial = settings.seed, finder.sources, initial_reranker(model, settings)
    training = settings.reranker.but("num_negatives")
    measuring = settings.evaluate.model_copy(update={"measures": MEASURES})
    return [
        pairs_step(finder, settings),
        Step(CANDIDATES_STAGE, call(rerank_candidates, finder, inputs.candidates)),
        Step(
            RERANKER_PAIRS_STAGE,
            call(reranker_pairs, sources, settings.reranker.num_negatives, seed=seed),
            lambda: contents(finder),
            untracked=("sources",),
        ),
        Step(RERANKER_STAGE, call(train_rerankers, training, finder, initial, seed=seed)),
        Step(
            RERANKER_CONTROL_STAGE,
            call(train_control, training, finder, initial, enabled=inputs.control, seed=seed),
        ),
        Step(RERANKER_TEST_STAGE, call(rank_test_candidates, finder, initial, inputs.candidates)),
        Step(
            EVALUATION_STAGE,
            call(evaluate_reranker, measuring.only("measures", "n_resamples", "permutations"), seed=seed),
        ),
        Step(RERANKER_VERDICT_STAGE, call(decide_reranker)),
    ]


def _write_pages(run: Run, model: SentenceTransformersSettings, settings: Settings, sources: list[str]) -> None:
    """Write card, views and report."""
    from darklode.pipeline.reranker.card import card

    publish(run, card(run, settings, initial_reranker(model, settings), sources))
    write_report(run)


def _folder_steps(_run: Run, inputs: RerankerInputs, settings: Settings) -> list[Step]:
    """The steps; nothing is opened."""
    finder = unopened_base(inputs.encoder, settings)
    return steps(finder, SentenceTransformersSettings(model=inputs.base), inputs, settings)


JOB = Job(
    "train-reranker",
    train_reranker,
    RerankerInputs,
    _folder_steps,
    sections=RUN_SECTIONS,
    refusals=(NoLift,),
)
