"""adapt-encoder: train a query encoder on the labels of runs while their documents' vectors stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from darklode.flows import factories
from darklode.flows.executor import executor
from darklode.flows.prefect.progress import reporter
from darklode.flows.runs import ADAPTED, SETTINGS, RunInputs, note, read_inputs, read_notes
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Run, Step, Store, call, key_of
from darklode.pipeline.base.duckdb_views import views_sql
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.pipeline.evaluate.stage import EVALUATE, evaluate
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.serve.registry import AdapterRegistry, is_registry
from darklode.pipeline.train.data.pairs import PAIRS, adaptation_pairs
from darklode.pipeline.train.data.sources import TrainingSource, resolve_tenant
from darklode.pipeline.train.data.unjudged import HOLES, NOBODY, UnjudgedJudges, format_unjudged, judge_unjudged
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.pipeline.train.fit.stage import TRAIN, train
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.evaluation import MEASURES, SYSTEMS, TESTED, rank_test_queries
from darklode.pipeline.train.release.headroom import HEADROOM_STAGE, measure_headroom
from darklode.pipeline.train.release.verdict import VERDICT, demand_lift, read_verdict, verdict
from darklode.schemas.adaptation import METHOD
from darklode.schemas.settings import Settings

WARM = "warm_start"
"""What is noted of where training began: an adapter's folder, or nothing."""

STAGES = (PAIRS, HEADROOM_STAGE, TRAIN, TESTED, HOLES, EVALUATE, VERDICT)
"""In data order."""


def adapt_encoder(
    runs: Sequence[str],
    encoder: str,
    out: str,
    settings: dict[str, Any] | None = None,
    dry_run: bool = False,
    warm_start: str | None = None,
) -> str:
    """Adapt a query encoder to the labels of runs, and prove the lift or say that there is none.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; settings start from those of the first.
        encoder: a name among the settings' encoders, or a sentence-transformers model.
        out: folder or s3:// prefix of the adapted encoder.
        settings: what differs from the first run's own settings.
        dry_run: stop before training, and say what could be gained.
        warm_start: an adapter that training begins with, or a registry, whose live one it is.

    Returns:
        What was decided.

    Raises:
        NoLift: the base is handed over.
        MissingPart: the method needs what is not installed, or a judge of the runs lacks a key or its server.
    """
    made = [read_inputs(Run(url)) for url in runs]
    chosen = made[0].with_overrides(settings or {})
    check_parts(chosen.adapt.method)
    from darklode.pipeline.train.release.card import headroom_told

    base = open_base(runs, made, encoder, chosen)
    run = place(out)
    with run.lock():
        base = initialized_base(run, base, chosen, warm_start) if warm_start else base
        if warm_start and base.start is None:
            reporter().say(f"training begins with the base: nothing was live in {warm_start} when these rows came")
        note(run, {ADAPTED: list(runs), "encoder": encoder, WARM: base.start.url if base.start else ""})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        judges = judges_of(base, made)
        for step in steps(base, chosen, judges):
            if step.stage is TRAIN and not step.plan(run).is_up_to_date:
                _check_saving(run, base)
                judges.check(chosen.adapt.judge_holes, resolve_tenant(list(base.sources), chosen.adapt.tenant))
            run_step(run, step)
            if step.stage is HEADROOM_STAGE:
                reporter().table("headroom", run.tables("headroom").read("headroom"))
                summary = f"{headroom_told(run)}{format_unjudged(run, judges, chosen.adapt.judge_holes)}"
                reporter().say(summary)
                if dry_run:
                    return summary
        hand_over(run, base, chosen, list(runs))
    return demand_lift(run)


def _check_saving(run: Run, base: BaseEncoder) -> None:
    """What cannot be handed over is not trained."""
    from darklode.pipeline.train.release.folder import require_reproducible

    assert isinstance(base.encoder, SentenceTransformersSettings)
    require_reproducible(base, base.encoder, run.tables("adaptation_queries"))


def judges_of(base: BaseEncoder, made: Sequence[RunInputs]) -> UnjudgedJudges:
    """Each run's judge, by the run's own settings."""
    pairs = zip(base.sources, made, strict=True)
    return UnjudgedJudges(tuple((source, Judges.from_settings(run_inputs.settings)) for source, run_inputs in pairs))


def steps(base: BaseEncoder, settings: Settings, judges: UnjudgedJudges = NOBODY) -> list[Step]:
    """The stages, in data order; without judges no hole is judged."""
    adapt, seed = settings.adapt, settings.seed
    measuring = settings.evaluate.model_copy(update={"measures": MEASURES})
    return [
        pairs_step(base, settings),
        Step(HEADROOM_STAGE, call(measure_headroom, base)),
        Step(TRAIN, call(train, adapt.but("tenant", "sources", "min_probability", "judge_holes"), base, seed=seed)),
        Step(TESTED, call(rank_test_queries, adapt.only(*METHOD), base)),
        Step(HOLES, call(judge_unjudged, adapt.judge_holes, judges), lambda: contents(base)),
        Step(
            EVALUATE,
            call(evaluate, measuring.only("measures", "bootstrap", "flips"), systems=list(SYSTEMS), seed=seed),
        ),
        Step(VERDICT, call(verdict)),
    ]


def pairs_step(base: BaseEncoder, settings: Settings) -> Step:
    """What is learned from."""
    learned = list(base.start.learned) if base.start else []
    return Step(
        PAIRS,
        call(adaptation_pairs, settings.adapt.only("tenant", "sources", "min_probability"), learned),
        lambda: contents(base) | ({"what was learned before": key_of(learned)} if learned else {}),
        untracked=("learned",),
        source=base.sources,
    )


def contents(base: BaseEncoder) -> dict[str, str]:
    """What identifies the runs."""
    return {f"the run {source.run.store.url}": source.content() for source in base.sources}


def initialized_base(run: Run, base: BaseEncoder, settings: Settings, warm_start: str) -> BaseEncoder:
    """The base with what training begins with: what was live when these rows came. A second night changes nothing.

    An empty place is a registry of which nothing was released yet.

    Raises:
        ArtifactError: neither a registry nor an adapter lies there.
        DoesNotFit: that is another tenant's, or of another base.
        SettingsError: the method cannot begin with it.
    """
    from darklode.pipeline.train.fit.warm_start import demand_head, start_from

    encoder, method = base.encoder, settings.adapt.method
    assert isinstance(encoder, SentenceTransformersSettings)
    demand_head(method)
    tenant = resolve_tenant(list(base.sources), settings.adapt.tenant)
    live = (
        AdapterRegistry(warm_start).live_adapter(tenant) if is_registry(Store(warm_start)) else Adapter.open(warm_start)
    )
    before = read_notes(run).get(WARM)
    if before is not None and before != (live and live.store.url):
        initialized = replace(base, start=start_from(Adapter.open(before), tenant, encoder, method) if before else None)
        if steps(initialized, settings)[0].plan(run).is_up_to_date:
            return initialized
    return replace(base, start=start_from(live, tenant, encoder, method)) if live else base


def open_base(runs: Sequence[str], made: Sequence[RunInputs], encoder: str, settings: Settings) -> BaseEncoder:
    """The encoder that is adapted, with its vectors and the runs.

    Raises:
        SettingsError: the encoder is not one of sentence-transformers.
        MissingPart: its model is neither here nor to be had.
    """
    encoder_settings = factories.encoder(encoder, settings)
    if not isinstance(encoder_settings, SentenceTransformersSettings):
        raise SettingsError(
            f"encoders.{encoder} is of kind {encoder_settings.kind}, whose weights are on a server: an adapted head "
            "can only be saved with an encoder of kind sentence_transformers"
        )
    encoder_settings.fetch()
    sources = [
        TrainingSource(Run(url), number, run_inputs.is_mined, run_inputs.settings.mining.text_characters)
        for number, (url, run_inputs) in enumerate(zip(runs, made, strict=True))
    ]
    return BaseEncoder(encoder_settings, settings.cache, settings.vectors, tuple(sources))


def place(out: str) -> Run:
    """Where the encoder goes.

    Raises:
        ArtifactError: something else lies there.
    """
    run = Run(out)
    if ADAPTED not in read_notes(run) and run.store.root_names():
        raise ArtifactError(f"{run.store.url} holds something else than an adapted encoder; choose another --out")
    return run


def hand_over(run: Run, base: BaseEncoder, settings: Settings, runs: list[str]) -> None:
    """Write the folder that one takes home, the card, the views and the report."""
    from darklode.flows.jobs.registry import write_report
    from darklode.pipeline.train.release.card import card
    from darklode.pipeline.train.release.folder import save
    from darklode.pipeline.train.release.identity import fingerprint, record

    assert isinstance(base.encoder, SentenceTransformersSettings)
    save(run, base, base.encoder, settings.adapt)
    record(run, base, base.encoder, read_verdict(run.tables(VERDICT.name)), fingerprint(run.tables()))
    run.store.write("views.sql", views_sql(run).encode())
    text = card(run, settings, base.encoder, runs)
    run.store.write("README.md", text)
    write_report(run)
    executor().show(run, text.decode)
