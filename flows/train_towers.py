"""train-towers: both towers from triplets (stage 1), or a smaller query tower from queries alone (stage 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml

from darklode.flows.adapt_encoder import base_of, place
from darklode.flows.executor import executor
from darklode.flows.runs import ADAPTED, SETTINGS, note, recorded
from darklode.flows.steps import run_step
from darklode.flows.train_both_towers import train_both_towers
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import DoesNotFit, SettingsError
from darklode.pipeline.base.views import views_sql
from darklode.pipeline.evaluate.stage import EVALUATE, evaluate
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.queries import INGEST_QUERIES
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.pair import Pair
from darklode.pipeline.towers.queries import QUERIES, content, read_files, tower_queries
from darklode.pipeline.towers.stage import DISTIL, distil
from darklode.pipeline.towers.tested import MEASURES, SYSTEMS, TESTED, tested
from darklode.pipeline.train.adapter import Adapter
from darklode.pipeline.train.identity import identity
from darklode.pipeline.train.needs import check_parts
from darklode.pipeline.train.pairs import PAIRS, adaptation_pairs
from darklode.pipeline.train.sources import tenant_of
from darklode.pipeline.train.vectors import Base
from darklode.schemas.places import absolute
from darklode.schemas.settings import IngestSettings, Settings


def train_towers(  # noqa: PLR0913, PLR0917 (they are the form in which Prefect asks for a run)
    runs: Sequence[str],
    encoder: str,
    out: str,
    settings: dict[str, Any] | None = None,
    teacher: str | None = None,
    queries: Sequence[str] = (),
    stage: Literal[1, 2] = 2,
) -> str:
    """Train both towers, or distil a query tower and measure what it keeps of its teacher.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; settings start from those of the first.
        encoder: of the index, or what both towers begin as: a name among the settings' encoders, or a
            sentence-transformers model.
        out: folder or s3:// prefix of the student, or of both towers.
        settings: what differs from the first run's own settings.
        teacher: a folder of `darklode adapt` on this encoder; None: the encoder itself.
        queries: files of more queries, as `build` reads them.
        stage: of ScalingNote: 1 trains both towers, without teacher and queries; 2 distils.

    Returns:
        What was reached.

    Raises:
        DoesNotFit: the teacher was adapted from another encoder, or for another tenant.
        MissingPart: a model or a package is missing.
        SettingsError: a teacher or queries for stage 1.
    """
    if stage == 1:
        if teacher or queries:
            raise SettingsError("stage 1 learns from triplets: a teacher and more queries are for stage 2")
        return train_both_towers(runs, encoder, out, settings)
    made = [recorded(Run(url)) for url in runs]
    chosen = made[0].changed(settings or {})
    check_parts("full")
    base = base_of(runs, made, encoder, chosen)
    assert isinstance(base.encoder, SentenceTransformersSettings)
    run = place(out)
    with run.lock(), teaching(teacher, base, base.encoder, chosen) as pair:
        note(run, {ADAPTED: list(runs), "encoder": encoder, "teacher": teacher, "queries": list(queries)})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        for step in steps(base, pair, list(queries), chosen):
            run_step(run, step)
        return hand_over(run, base, pair, chosen, [*runs, *queries])


def steps(base: Base, pair: Pair, files: list[str], settings: Settings) -> list[Step]:
    """The stages, in data order."""
    given, seed, sources = settings.towers, settings.seed, base.sources
    measuring = settings.evaluate.model_copy(update={"measures": MEASURES})
    return [
        Step(
            INGEST_QUERIES,
            lambda: call(read_files, _reading(base, settings)),
            lambda: {f"the file {path}": source_fingerprint(path) for path in files},
            source=files,
        ),
        Step(
            QUERIES,
            call(tower_queries, sources, tenant=settings.adapt.tenant, held_out=given.held_out, seed=seed),
            lambda: {f"the run {one.run.store.url}": content(one) for one in sources},
            unkeyed=("sources",),
        ),
        Step(
            PAIRS,
            call(adaptation_pairs, settings.adapt.only("tenant", "sources", "min_probability")),
            lambda: {f"the run {one.run.store.url}": one.content() for one in sources},
            source=sources,
        ),
        Step(DISTIL, call(distil, given.only("steps", "batch", "learning_rates", "report_to"), pair, seed=seed)),
        Step(TESTED, call(tested, base, pair)),
        Step(
            EVALUATE,
            call(evaluate, measuring.only("measures", "bootstrap", "flips"), systems=list(SYSTEMS), seed=seed),
        ),
    ]


def _reading(base: Base, settings: Settings) -> IngestSettings:
    """Queries of files that name no tenant are of the one whose index it is."""
    whose = tenant_of(list(base.sources), settings.adapt.tenant)
    return settings.ingest.model_copy(update={"tenant": whose}).but("documents")


@contextmanager
def teaching(
    teacher: str | None, base: Base, encoder: SentenceTransformersSettings, settings: Settings
) -> Iterator[Pair]:
    """Teacher and student; an adapter that lies elsewhere is on this machine meanwhile.

    Raises:
        DoesNotFit: the adapter was made from another encoder, or for another tenant.
        ArtifactError: there is no adapter.
    """
    given, model = settings.towers, None
    if given.student:
        model = SentenceTransformersSettings(model=given.student, device=encoder.device)
        model.fetch()
    if teacher is None:
        yield Pair(encoder, settings.cache, model, given.layers)
        return
    adapter = Adapter.open(teacher)
    _demand(adapter, encoder, tenant_of(list(base.sources), settings.adapt.tenant))
    with adapter.on_disk() as folder:
        yield Pair(_adapted(adapter, folder), settings.cache, model, given.layers)


def _demand(adapter: Adapter, encoder: SentenceTransformersSettings, tenant: str) -> None:
    mine, recorded_ = identity(encoder), adapter.facts["base"]
    for name in mine.keys() - {"settings"}:
        if mine[name] != recorded_[name]:
            raise DoesNotFit(f"{adapter.store.url} was made from another encoder: {name} {recorded_[name]}")
    if adapter.light:
        raise DoesNotFit(f"{adapter.store.url} is a head alone, one of many tenants'; adapt that tenant by itself")
    if adapter.tenant != tenant:
        raise DoesNotFit(f"{adapter.store.url} is the tenant {adapter.tenant}'s, and nothing for {tenant}")


def _adapted(adapter: Adapter, folder: Path) -> SentenceTransformersSettings:
    """The adapter's encoder: head, cut and length 1 are in its folder, the prompt is put before queries here."""
    return adapter.base.model_copy(update={"model": absolute(str(folder)), "revision": None, "dimensions": None})


def hand_over(run: Run, base: Base, pair: Pair, settings: Settings, sources: list[str]) -> str:
    """Write the folder that one takes home, its record, the card and the views; returns what was reached."""
    from darklode.pipeline.towers.card import card
    from darklode.pipeline.towers.folder import save, sentence, write_record

    assert isinstance(base.encoder, SentenceTransformersSettings)
    save(run, pair)
    write_record(run, base, base.encoder)
    run.store.write("views.sql", views_sql(run).encode())
    text = card(run, settings, pair, sources)
    run.store.write("README.md", text)
    executor().show(run, text.decode)
    return f"{run.store.url}/query_encoder: {sentence(run.tables())}."
