"""build-index: semantic ids and a compressed, measured index of a run's vectors; update-index keeps it current."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from darklode.flows import tools
from darklode.flows.config import recorded_settings, resolve
from darklode.flows.executor import executor
from darklode.flows.runs import INDEXED, SETTINGS, note, noted, recorded
from darklode.flows.serving import tenant_of
from darklode.flows.spreading import spreading
from darklode.flows.steps import run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.base.memory.parts import settled
from darklode.pipeline.base.spread import Spread, here
from darklode.pipeline.base.views import views_sql
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.serve.vectors.filling import FILL, KIND, Place, fill, forget_missing, refill
from darklode.pipeline.serve.vectors.given import Given, Kept, OfFile, OfRun
from darklode.pipeline.serve.vectors.page import PAGE, page
from darklode.pipeline.serve.vectors.probes import PROBES, Asked, probes, updated_probes
from darklode.pipeline.serve.vectors.recall import RECALL, Opening, measured_again, recall
from darklode.pipeline.serve.vectors.record import Facts, Origin, read_record, record
from darklode.pipeline.serve.vectors.semantic_ids import CODEBOOKS, IDS, codebooks, semantic_ids, updated_ids
from darklode.pipeline.serve.vectors.texts import TEXTS, indexed_texts, updated_texts
from darklode.pipeline.train.adapter import Adapter
from darklode.pipeline.train.sources import Source
from darklode.schemas.settings import Settings

FILES = (".parquet", ".npy")
NOBODY = "default"
"""The tenant of a file of vectors that none is named for."""


def build_index(
    source: str,
    encoder: str,
    out: str,
    settings: dict[str, Any] | None = None,
    tenant: str | None = None,
    adapter: str | None = None,
) -> str:
    """Give texts semantic ids, compress their vectors and measure what a search of them finds.

    Args:
        source: folder or s3:// prefix of a build or a mined run, or a file of vectors.
        encoder: a name among the settings' encoders, or a sentence-transformers model; the vectors are by it.
        out: folder or s3:// prefix of the index.
        settings: what differs from the run's own settings.
        tenant: whose texts; None: the only one's.
        adapter: folder of `darklode adapt`, whose queries recall is measured for, too.

    Returns:
        What was made.

    Raises:
        DoesNotFit: the adapter is not for this encoder.
        MissingPart: faiss or the encoder is not here.
    """
    chosen = _settings(source, settings or {})
    found = Adapter.open(adapter) if adapter else None
    model = _fetched(encoder, chosen)
    if found and found.base.encoder_id() != model.encoder_id():
        raise DoesNotFit(f"{adapter} is made from {found.base.encoder_id()}, and the index by {model.encoder_id()}")
    given = given_of(source, chosen, model, tenant, found)
    run = _place(out)
    with run.lock(), spreading(chosen.runner, run) as spread:
        note(run, {INDEXED: source, "encoder": encoder, "tenant": given.tenant, "adapter": adapter})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        forget_missing(run)
        for step in steps(run, given, chosen, found, spread):
            run_step(run, step)
        return _finished(run, Origin(given, model, chosen.index, adapter))


def update_index(folder: str, source: str) -> str:
    """Bring an index to what a run holds now: what came, changed and went, with the codes that were fitted before.

    Args:
        folder: of `build_index`.
        source: the run or the file of vectors as it is now.

    Returns:
        What was done, how far recall is from that at the last training, and whether to fit anew.

    Raises:
        ArtifactError: there is no finished index.
    """
    run = Run(folder)
    facts, about = read_record(run.store), noted(run)
    chosen = recorded_settings(run.store.read(SETTINGS) or b"{}")
    model = _fetched(about["encoder"], chosen)
    given = given_of(source, chosen, model, facts["tenant"], None)
    if model.encoder_id() != facts["encoder"]["id"]:
        raise DoesNotFit(
            f"the index is by {facts['encoder']['id']}, and {about['encoder']} is {model.encoder_id()} now"
        )
    with run.lock():
        if facts["content"] == given.content():
            return f"Nothing changed. {told(facts)}"
        note(run, {INDEXED: source})
        for step in update_steps(run, given, chosen, facts):
            run_step(run, step)
        return _finished(run, Origin(given, model, chosen.index, about["adapter"]))


def steps(run: Run, given: Given, settings: Settings, adapter: Adapter | None, spread: Spread = here) -> list[Step]:
    """The stages, in data order."""
    mine, seed, place = settings.index, settings.seed, Place(run.store, settings.index.rerank > 1)
    return [
        Step(TEXTS, call(indexed_texts), lambda: _content(given), source=given),
        Step(CODEBOOKS, call(codebooks, settings.semantic_ids, given, spread, seed=seed), unkeyed=("spread",)),
        Step(IDS, call(semantic_ids, given, spread), unkeyed=("spread",)),
        Step(
            FILL,
            call(fill, mine.but("rerank", "recall", "queries"), given, place, spread, seed=seed),
            unkeyed=("spread",),
        ),
        Step(PROBES, call(probes, Asked(given, adapter), queries=mine.queries), lambda: _content(given)),
        Step(
            RECALL,
            lambda: call(recall, Opening(run.store, _built(run), mine.rerank, mine.dimensions), target=mine.recall),
        ),
    ]


def update_steps(run: Run, given: Given, settings: Settings, facts: Facts) -> list[Step]:
    """The stages of an update: nothing is fitted."""
    mine, trained, place = settings.index, facts["codebook"], Place(run.store, settings.index.rerank > 1)
    opening = Opening(run.store, facts["built"], facts["rerank"], mine.dimensions)
    return [
        Step(TEXTS, call(updated_texts, trained=trained), lambda: _content(given), source=given),
        Step(IDS, call(updated_ids, given, trained=trained)),
        Step(FILL, call(refill, given, place, kind=facts["built"], trained=trained)),
        Step(PROBES, call(updated_probes, given, trained=trained)),
        Step(RECALL, call(measured_again, opening, effort=facts["effort"])),
    ]


def given_of(
    source: str, settings: Settings, encoder: EncoderKind, tenant: str | None, adapter: Adapter | None
) -> Given:
    """What is indexed.

    Raises:
        ArtifactError: the run has several tenants and none is named.
    """
    kept = Kept(encoder, settled(settings.cache), settings.index.dimensions)
    if source.endswith(FILES):
        return OfFile(source, tenant or NOBODY, kept)
    run = Run(source)
    made = recorded(run)
    found = Source(run, 0, made.mined, made.settings.mining.text_characters)
    return OfRun(found, tenant_of(found, tenant, [adapter] if adapter else []), kept)


def told(facts: Facts) -> str:
    """What an index is and finds, in some sentences."""
    recalls = [_recall_told(facts, part) for part in facts["recall"]]
    speed, size = facts["queries per second"], facts["bytes per vector"]["in memory"]
    about = f"{facts['count']:,} texts, {facts['built']}, {size} bytes a vector in memory"
    few = "" if facts["built"] == facts["kind"] else f" ({facts['kind']} needs more texts to be fitted)"
    return " ".join([f"{about}{few}; {speed or 0:,.0f} queries a second.", *recalls, *facts["advice"]])


def _recall_told(facts: Facts, part: str) -> str:
    now = {depth: row["recall"] for depth, row in facts["recall"][part].items()}
    since = now["100"] - facts["at training"]["recall"][part]["100"]["recall"]
    return (
        f"{part[0].upper()}{part[1:]} queries: recall@10 {now['10']:.3f}, recall@100 {now['100']:.3f} "
        f"({since:+.3f} since it was fitted)."
    )


def _content(given: Given) -> Mapping[str, str]:
    return {"the texts": given.content()}


def _built(run: Run) -> str:
    manifest = run.manifest(FILL)
    assert manifest is not None
    return str(manifest.facts[KIND])


def _settings(source: str, values: Mapping[str, Any]) -> Settings:
    return resolve(values) if source.endswith(FILES) else recorded(Run(source)).changed(values)


def _fetched(name: str, settings: Settings) -> EncoderKind:
    found = tools.encoder(name, settings)
    found.fetch()
    return found


def _place(out: str) -> Run:
    run = Run(out)
    if INDEXED not in noted(run) and run.store.lying():
        raise ArtifactError(f"{run.store.url} holds something else than an index; choose another --out")
    return run


def _finished(run: Run, origin: Origin) -> str:
    facts = record(run, origin)
    run.store.write("views.sql", views_sql(run).encode())
    text = page(run, facts)
    run.store.write(PAGE, text)
    executor().show(run, text.decode)
    return told(facts)
