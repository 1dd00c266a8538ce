"""adapt-encoder: train a query encoder on the labels of runs; the documents' vectors stay unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from darklode.flows import factories
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.prefect.progress import reporter
from darklode.flows.report import write_report
from darklode.flows.runs import RunRecord, folder_kind, output_run, read_inputs, read_run, read_runs, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, Store, call, key_of
from darklode.pipeline.base.errors import NoLift, SettingsError
from darklode.pipeline.evaluate.stage import EVALUATION_STAGE
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.serve.registry import AdapterRegistry, is_registry
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.judgments import (
    ADAPTATION_JUDGMENTS_STAGE,
    JUDGMENT_TABLES,
    adaptation_judgments,
)
from darklode.pipeline.train.data.pairs import PAIRS_STAGE, adaptation_pairs
from darklode.pipeline.train.data.sources import resolve_tenant
from darklode.pipeline.train.data.term_vectors import TERM_VECTORS_STAGE, write_term_vectors
from darklode.pipeline.train.fit.method_registry import choose_method
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.pipeline.train.fit.stage import TRAIN_STAGE, train
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.bm25_rankings import Bm25Cache
from darklode.pipeline.train.release.evaluation import (
    ADAPTER_TEST_STAGE,
    MEASURES,
    decisive_systems,
    evaluate_adapter,
    rank_test_queries,
)
from darklode.pipeline.train.release.headroom import HEADROOM_STAGE, measure_headroom
from darklode.pipeline.train.release.label_control import CONTROL_STAGE, train_control
from darklode.pipeline.train.release.shared_models import shared_with_judge
from darklode.pipeline.train.release.unjudged import (
    NO_JUDGES,
    UNJUDGED_STAGE,
    UnjudgedJudges,
    format_unjudged,
    judge_unjudged,
)
from darklode.pipeline.train.release.verdict import VERDICT_STAGE, decide_release, read_verdict, require_lift
from darklode.schemas.adaptation import HEADS, METHOD, AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS, CONTROL_WEIGHTS
from darklode.schemas.run_inputs import AdapterInputs
from darklode.schemas.settings import Settings

WEIGHTS = {TRAIN_STAGE: ADAPTER_WEIGHTS.name, CONTROL_STAGE: CONTROL_WEIGHTS.name}
"""Stages that train, with the tables of their weights."""


def adapt_encoder(  # noqa: PLR0913 (the parameters of the Prefect flow)
    runs: Sequence[str],
    encoder: str,
    out: str,
    settings: dict[str, Any] | None = None,
    dry_run: bool = False,
    warm_start: str | None = None,
    *,
    qrels: str | None = None,
) -> str:
    """Adapt a query encoder to the labels of runs, and test whether it is better than its base.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; the first one's settings are the base.
        encoder: name of an encoder in the settings, or a sentence-transformers model.
        out: folder or s3:// prefix of the adapted encoder.
        settings: overrides of the first run's settings.
        dry_run: stop before training, and report the headroom.
        warm_start: an adapter to start training from, or a registry, whose live adapter it is.
        qrels: file or folder of relevance judgments for the run's queries; they replace its labels and splits.

    Returns:
        The verdict.

    Raises:
        ArtifactError: judgments for several runs, or for a mined one.
        NoLift: no lift is shown, so the base is released.
        MissingPart: the method needs a package that is not installed, or a run's judge lacks a key or its server.
    """
    from darklode.pipeline.train.release.card import format_headroom
    from darklode.pipeline.train.release.folder import needs_weights

    records = read_runs(runs)
    resolved = records[0].with_overrides(settings or {})
    resolved = with_adapt(resolved, resolved.adapt.with_head()) if warm_start else resolved
    check_parts(resolved.adapt.method)
    base = open_base(records, encoder, resolved)
    run = output_run(out, AdapterInputs)
    with run.lock():
        base = initialized_base(run, base, resolved, warm_start) if warm_start else base
        if warm_start and base.start is None:
            reporter().say(f"training starts from the base: {warm_start} had no live head when these rows came")
        write_run(run, adapter_inputs(runs, encoder, base, qrels), resolved)
        if qrels:
            run_step(run, judgments_step(base, resolved, qrels))
            judgments = run.tables(*JUDGMENT_TABLES)
            base = replace(base, sources=tuple(replace(source, judgments=judgments) for source in base.sources))
        run_step(run, pairs_step(base, resolved))
        adapt, reason = choose_method(resolved.adapt, run.tables("adaptation_queries"))
        resolved = with_adapt(resolved, adapt)
        if reason:
            reporter().say(reason)
        write_run(run, adapter_inputs(runs, encoder, base, qrels), resolved)
        judges = judges_of(base, records)
        if warning := label_bias(base, judges, resolved.adapt.tenant):
            reporter().say(f"{warning}.")
        later_steps = steps(base, resolved, judges)[1:]  # without the pairs, which chose the method
        for step in later_steps:
            if step.stage is ADAPTER_TEST_STAGE and not step.plan(run).is_up_to_date:
                restore_weights(run, later_steps)
            if step.stage is TRAIN_STAGE and not step.plan(run).is_up_to_date:
                _check_saving(run, base)
                judges.check(resolved.adapt.unjudged_budget, resolve_tenant(list(base.sources), resolved.adapt.tenant))
            run_step(run, step)
            if step.stage is HEADROOM_STAGE:
                reporter().table("headroom", run.tables("headroom").read("headroom"))
                summary = f"{format_headroom(run)}{format_unjudged(run, judges, resolved.adapt.unjudged_budget)}"
                reporter().say(summary)
                if dry_run:
                    return summary
        if needs_weights(run, base) and restore_weights(run, later_steps):
            for step in later_steps:
                run_step(run, step)
        hand_over(run, base, resolved, list(runs))
    return require_lift(run)


def with_adapt(settings: Settings, adapt: AdaptSettings) -> Settings:
    """The settings with another section `adapt`."""
    return settings.model_copy(update={"adapt": adapt})


def adapter_inputs(runs: Sequence[str], encoder: str, base: BaseEncoder, qrels: str | None = None) -> AdapterInputs:
    """The inputs of an adapter's folder."""
    start = base.start.url if base.start else ""
    return AdapterInputs(runs=list(runs), encoder=encoder, warm_start=start, qrels=qrels)


def _check_saving(run: Run, base: BaseEncoder) -> None:
    """Check before training that the encoder's vectors can be reproduced by the saved folder."""
    from darklode.pipeline.train.release.folder import require_reproducible

    assert isinstance(base.encoder, SentenceTransformersSettings)
    require_reproducible(base, base.encoder, run.tables("adaptation_queries"))


def judges_of(base: BaseEncoder, records: Sequence[RunRecord]) -> UnjudgedJudges:
    """Each run's judge, with the run's own settings."""
    pairs = zip(base.sources, records, strict=True)
    runs = tuple((source, Judges.from_settings(record.settings)) for source, record in pairs)
    return UnjudgedJudges(runs, tuple(number for number, record in enumerate(records) if record.settings.labels.binary))


def label_bias(base: BaseEncoder, judges: UnjudgedJudges, tenant: str | None) -> str | None:
    """Why the labels of the first such run favour the base; None if no run's judge shares its model."""
    for source, _ in judges.runs:
        if source.mined:
            continue
        encoders = read_run(source.run).settings.encoders
        if warning := shared_with_judge(base.encoder, source.run.tables("verdicts", "qrels"), encoders, tenant):
            return warning
    return None


def steps(
    base: BaseEncoder, settings: Settings, judges: UnjudgedJudges = NO_JUDGES, *, term_vectors: bool = True
) -> list[Step]:
    """The steps in data order; without judges, unjudged results stay unjudged.

    Args:
        base: the encoder to adapt.
        settings: all settings.
        judges: the runs' judges.
        term_vectors: whether to learn them; a head that is saved without an encoder has no place for them.
    """
    adapt, seed = settings.adapt, settings.seed
    bm25 = Bm25Cache()
    measuring = settings.evaluate.model_copy(update={"measures": MEASURES})
    return [
        pairs_step(base, settings),
        terms_step(base, adapt, [adapt.method] if term_vectors else [], seed),
        Step(HEADROOM_STAGE, call(measure_headroom, base, bm25), untracked=("bm25",)),
        Step(
            TRAIN_STAGE,
            call(train, adapt.but("tenant", "sources", "unjudged_budget"), base, seed=seed),
        ),
        Step(
            CONTROL_STAGE,
            call(train_control, adapt.but("tenant", "sources", "unjudged_budget", "serve_as"), base, seed=seed),
        ),
        Step(ADAPTER_TEST_STAGE, call(rank_test_queries, adapt.only(*METHOD), base, bm25), untracked=("bm25",)),
        Step(
            UNJUDGED_STAGE,
            call(judge_unjudged, adapt.unjudged_budget, judges, first=decisive_systems(adapt.serve_as)),
            lambda: contents(base),
        ),
        Step(
            EVALUATION_STAGE,
            call(evaluate_adapter, measuring.only("measures", "n_resamples", "permutations"), seed=seed),
        ),
        Step(VERDICT_STAGE, call(decide_release, adapt.only("serve_as"), label_bias(base, judges, adapt.tenant))),
    ]


def judgments_step(base: BaseEncoder, settings: Settings, qrels: str) -> Step:
    """Judgments that are brought for a run."""
    return Step(
        ADAPTATION_JUDGMENTS_STAGE,
        call(adaptation_judgments, settings.ingest.but("queries", "documents"), path=qrels),
        lambda: {"the judgments' files": source_fingerprint(qrels)} | contents(base),
        untracked=("path",),
        source=base.sources,
    )


def pairs_step(base: BaseEncoder, settings: Settings) -> Step:
    """Training pairs of the runs."""
    learned = list(base.start.learned) if base.start else []
    return Step(
        PAIRS_STAGE,
        call(adaptation_pairs, settings.adapt.only("tenant", "sources", "targets"), learned),
        lambda: contents(base) | ({"what was learned before": key_of(learned)} if learned else {}),
        untracked=("learned",),
        source=base.sources,
    )


def terms_step(base: BaseEncoder, adapt: AdaptSettings, methods: Sequence[str], seed: int) -> Step:
    """Term vectors, if they are asked for and one of some methods can start from them."""
    enabled = adapt.init == "term_vectors" and bool({"whitened", "linear"} & set(methods)) and base.start is None
    return Step(TERM_VECTORS_STAGE, call(write_term_vectors, base, enabled=enabled, seed=seed), lambda: contents(base))


def contents(base: BaseEncoder) -> dict[str, str]:
    """Fingerprints of the runs."""
    return {f"the run {source.run.store.url}": source.content() for source in base.sources}


def initialized_base(run: Run, base: BaseEncoder, settings: Settings, warm_start: str) -> BaseEncoder:
    """The base with the adapter that training starts from: the one that was live when the current rows came.

    If the rows have not changed since the last training, that training's start is used again: a repeated night changes
    nothing. An empty folder counts as a registry without releases. If a whole encoder is live in the registry, training
    starts from the base.

    Raises:
        ArtifactError: the folder is neither a registry nor an adapter.
        DoesNotFit: the adapter is another tenant's, or of another base.
        SettingsError: the method cannot start from it.
    """
    from darklode.pipeline.train.release.warm_start import load_initial_head, require_head_method

    encoder, method = base.encoder, settings.adapt.method
    assert isinstance(encoder, SentenceTransformersSettings)
    require_head_method(method)
    tenant = resolve_tenant(list(base.sources), settings.adapt.tenant)
    if is_registry(Store(warm_start)):
        live = AdapterRegistry(warm_start).live_adapter(tenant)
        live = None if live is not None and live.ships and not live.layers else live
    else:
        live = Adapter.open(warm_start)
    inputs = read_inputs(run) if folder_kind(run) == "adapter" else None
    before = inputs.warm_start if isinstance(inputs, AdapterInputs) else None
    if before is not None and before != (live and live.store.url):
        initialized = replace(
            base, start=load_initial_head(Adapter.open(before), tenant, encoder, method) if before else None
        )
        if steps(initialized, settings)[0].plan(run).is_up_to_date:
            return initialized
    return replace(base, start=load_initial_head(live, tenant, encoder, method)) if live else base


def open_base(records: Sequence[RunRecord], encoder: str, settings: Settings) -> BaseEncoder:
    """The encoder to adapt, with its vectors and the runs.

    Raises:
        SettingsError: it is not a sentence-transformers encoder.
        MissingPart: its model is not on this machine and cannot be downloaded.
    """
    encoder_settings = factories.encoder(encoder, settings)
    if not isinstance(encoder_settings, SentenceTransformersSettings):
        raise SettingsError(
            f"encoders.{encoder} is of kind {encoder_settings.kind}; an adapted encoder can be saved only with the "
            "weights of kind sentence_transformers, such as the same model from the hub"
        )
    encoder_settings.fetch()
    sources = [record.training_source(number) for number, record in enumerate(records)]
    return BaseEncoder(encoder_settings, settings.cache, settings.vector_search, tuple(sources))


def unopened_base(encoder: str, settings: Settings) -> BaseEncoder:
    """A base without model and runs, for steps that are only named."""
    return BaseEncoder(SentenceTransformersSettings(model=encoder), settings.cache, settings.vector_search, ())


def restore_weights(run: Run, later_steps: Sequence[Step]) -> bool:
    """Train again if the weights were deleted after an earlier release (`hand_over`); returns whether they were.

    Args:
        run: a run with complete trials.
        later_steps: its steps from the trials on.
    """
    trainings = [step for step in later_steps if step.stage in WEIGHTS]
    cleared = [step.stage for step in trainings if run.is_cleared(step.stage, WEIGHTS[step.stage])]
    for stage in cleared:
        run.forget(stage)
    for step in trainings if cleared else ():
        run_step(run, step)
    return bool(cleared)


def hand_over(run: Run, base: BaseEncoder, settings: Settings, runs: list[str]) -> None:
    """Write the released encoder, its record, card, views and report; then delete the weights of a whole encoder's
    trials, each as large as the released encoder.
    """
    from darklode.pipeline.train.release.card import card
    from darklode.pipeline.train.release.folder import save
    from darklode.pipeline.train.release.identity import fingerprint, record

    assert isinstance(base.encoder, SentenceTransformersSettings)
    save(run, base, base.encoder, settings.adapt)
    record(run, base, base.encoder, read_verdict(run.tables(VERDICT_STAGE.name)), fingerprint(run.tables()))
    publish(run, card(run, settings, base.encoder, runs))
    write_report(run)
    if settings.adapt.method not in HEADS:
        for stage, table in WEIGHTS.items():
            run.clear_table(stage, table)


def _planned_steps(_run: Run, inputs: AdapterInputs, settings: Settings) -> list[Step]:
    base = unopened_base(inputs.encoder, settings)
    return [*([judgments_step(base, settings, inputs.qrels)] if inputs.qrels else []), *steps(base, settings)]


JOB = Job(
    "adapt-encoder",
    adapt_encoder,
    AdapterInputs,
    _planned_steps,
    sections=("adapting", "encoder_swap", *RUN_SECTIONS),
    refusals=(NoLift,),
)
