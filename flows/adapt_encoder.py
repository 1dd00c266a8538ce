"""adapt-encoder: train a query encoder on the labels of runs while their documents' vectors stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from darklode.flows import tools
from darklode.flows.executor import executor
from darklode.flows.reporting import reporter
from darklode.flows.runs import ADAPTED, SETTINGS, Recorded, note, noted, recorded
from darklode.flows.steps import run_step
from darklode.pipeline.base.artifacts import Run, Step, Store, call, key_of
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.pipeline.base.views import views_sql
from darklode.pipeline.evaluate.stage import EVALUATE, evaluate
from darklode.pipeline.judge.build import Judges
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.serve.registry import Registry, is_registry
from darklode.pipeline.train.adapter import Adapter
from darklode.pipeline.train.headroom import HEADROOM_STAGE, headroom
from darklode.pipeline.train.holes import HOLES, NOBODY, HoleJudges, holes, holes_told
from darklode.pipeline.train.needs import check_parts
from darklode.pipeline.train.pairs import PAIRS, adaptation_pairs
from darklode.pipeline.train.sources import Source, tenant_of
from darklode.pipeline.train.stage import TRAIN, train
from darklode.pipeline.train.tested import MEASURES, SYSTEMS, TESTED, tested
from darklode.pipeline.train.vectors import Base
from darklode.pipeline.train.verdict import VERDICT, demand_lift, read_verdict, verdict
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
    made = [recorded(Run(url)) for url in runs]
    chosen = made[0].changed(settings or {})
    check_parts(chosen.adapt.method)
    from darklode.pipeline.train.card import headroom_told

    base = base_of(runs, made, encoder, chosen)
    run = place(out)
    with run.lock():
        base = begun(run, base, chosen, warm_start) if warm_start else base
        if warm_start and base.start is None:
            reporter().say(f"training begins with the base: nothing was live in {warm_start} when these rows came")
        note(run, {ADAPTED: list(runs), "encoder": encoder, WARM: base.start.url if base.start else ""})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        judges = judges_of(base, made)
        for step in steps(base, chosen, judges):
            if step.stage is TRAIN and not step.plan(run).stands:
                _check_saving(run, base)
                judges.check(chosen.adapt.judge_holes, tenant_of(list(base.sources), chosen.adapt.tenant))
            run_step(run, step)
            if step.stage is HEADROOM_STAGE:
                reporter().table("headroom", run.tables("headroom").read("headroom"))
                told = f"{headroom_told(run)}{holes_told(run, judges, chosen.adapt.judge_holes)}"
                reporter().say(told)
                if dry_run:
                    return told
        hand_over(run, base, chosen, list(runs))
    return demand_lift(run)


def _check_saving(run: Run, base: Base) -> None:
    """What cannot be handed over is not trained."""
    from darklode.pipeline.train.folder import demand_reproducible

    assert isinstance(base.encoder, SentenceTransformersSettings)
    demand_reproducible(base, base.encoder, run.tables("adaptation_queries"))


def judges_of(base: Base, made: Sequence[Recorded]) -> HoleJudges:
    """Each run's judge, by the run's own settings."""
    pairs = zip(base.sources, made, strict=True)
    return HoleJudges(tuple((source, Judges.of(one.settings)) for source, one in pairs))


def steps(base: Base, settings: Settings, judges: HoleJudges = NOBODY) -> list[Step]:
    """The stages, in data order; without judges no hole is judged."""
    given, seed = settings.adapt, settings.seed
    measuring = settings.evaluate.model_copy(update={"measures": MEASURES})
    return [
        pairs_step(base, settings),
        Step(HEADROOM_STAGE, call(headroom, base)),
        Step(TRAIN, call(train, given.but("tenant", "sources", "min_probability", "judge_holes"), base, seed=seed)),
        Step(TESTED, call(tested, given.only(*METHOD), base)),
        Step(HOLES, call(holes, given.judge_holes, judges), lambda: contents(base)),
        Step(
            EVALUATE,
            call(evaluate, measuring.only("measures", "bootstrap", "flips"), systems=list(SYSTEMS), seed=seed),
        ),
        Step(VERDICT, call(verdict)),
    ]


def pairs_step(base: Base, settings: Settings) -> Step:
    """What is learned from."""
    learned = list(base.start.learned) if base.start else []
    return Step(
        PAIRS,
        call(adaptation_pairs, settings.adapt.only("tenant", "sources", "min_probability"), learned),
        lambda: contents(base) | ({"what was learned before": key_of(learned)} if learned else {}),
        unkeyed=("learned",),
        source=base.sources,
    )


def contents(base: Base) -> dict[str, str]:
    """What identifies the runs."""
    return {f"the run {one.run.store.url}": one.content() for one in base.sources}


def begun(run: Run, base: Base, settings: Settings, warm_start: str) -> Base:
    """The base with what training begins with: what was live when these rows came. A second night changes nothing.

    An empty place is a registry of which nothing was released yet.

    Raises:
        ArtifactError: neither a registry nor an adapter lies there.
        DoesNotFit: that is another tenant's, or of another base.
        SettingsError: the method cannot begin with it.
    """
    from darklode.pipeline.train.start import demand_head, start_from

    encoder, method = base.encoder, settings.adapt.method
    assert isinstance(encoder, SentenceTransformersSettings)
    demand_head(method)
    tenant = tenant_of(list(base.sources), settings.adapt.tenant)
    live = Registry(warm_start).on_air(tenant) if is_registry(Store(warm_start)) else Adapter.open(warm_start)
    before = noted(run).get(WARM)
    if before is not None and before != (live and live.store.url):
        kept = replace(base, start=start_from(Adapter.open(before), tenant, encoder, method) if before else None)
        if steps(kept, settings)[0].plan(run).stands:
            return kept
    return replace(base, start=start_from(live, tenant, encoder, method)) if live else base


def base_of(runs: Sequence[str], made: Sequence[Recorded], encoder: str, settings: Settings) -> Base:
    """The encoder that is adapted, with its vectors and the runs.

    Raises:
        SettingsError: the encoder is not one of sentence-transformers.
        MissingPart: its model is neither here nor to be had.
    """
    found = tools.encoder(encoder, settings)
    if not isinstance(found, SentenceTransformersSettings):
        raise SettingsError(
            f"encoders.{encoder} is of kind {found.kind}: an encoder whose weights are elsewhere cannot be handed over "
            "with a head; name one of kind sentence_transformers"
        )
    found.fetch()
    sources = [
        Source(Run(url), number, one.mined, one.settings.mining.text_characters)
        for number, (url, one) in enumerate(zip(runs, made, strict=True))
    ]
    return Base(found, settings.cache, settings.vectors, tuple(sources))


def place(out: str) -> Run:
    """Where the encoder goes.

    Raises:
        ArtifactError: something else lies there.
    """
    run = Run(out)
    if ADAPTED not in noted(run) and run.store.lying():
        raise ArtifactError(f"{run.store.url} holds something else than an adapted encoder; choose another --out")
    return run


def hand_over(run: Run, base: Base, settings: Settings, runs: list[str]) -> None:
    """Write the folder that one takes home, the card, the views and the report."""
    from darklode.flows.jobs import write_report
    from darklode.pipeline.train.card import card
    from darklode.pipeline.train.folder import save
    from darklode.pipeline.train.identity import fingerprint, record

    assert isinstance(base.encoder, SentenceTransformersSettings)
    save(run, base, base.encoder, settings.adapt)
    record(run, base, base.encoder, read_verdict(run.tables(VERDICT.name)), fingerprint(run.tables()))
    run.store.write("views.sql", views_sql(run).encode())
    text = card(run, settings, base.encoder, runs)
    run.store.write("README.md", text)
    write_report(run)
    executor().show(run, text.decode)
