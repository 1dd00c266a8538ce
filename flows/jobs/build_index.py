"""build-index: semantic ids and a compressed, measured index of a run's vectors; update-index keeps it current."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from darklode.flows import factories
from darklode.flows.config import recorded_settings, resolve
from darklode.flows.executor import executor
from darklode.flows.open_systems import resolve_tenant
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.runs import INDEXED, SETTINGS, note, read_inputs, read_notes
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.duckdb_views import views_sql
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.base.memory.parts import resolve_cache
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.index.build import BUILD, KIND, IndexLocation, build_files, invalidate_if_damaged, update_files
from darklode.pipeline.index.page import PAGE, page
from darklode.pipeline.index.probes import PROBES, QueryVectors, exact_neighbors, update_neighbors
from darklode.pipeline.index.recall import RECALL, IndexOpening, measure_recall, measure_updated
from darklode.pipeline.index.record import Facts, IndexOrigin, read_record, record
from darklode.pipeline.index.semantic_ids import (
    CODEBOOKS,
    IDS,
    update_semantic_ids,
    write_codebooks,
    write_semantic_ids,
)
from darklode.pipeline.index.source import FileSource, RunSource, StoredVectors, VectorSource
from darklode.pipeline.index.texts import TEXTS, update_indexed_texts, write_indexed_texts
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.release.adapter import Adapter
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
    opened_adapter = Adapter.open(adapter) if adapter else None
    model = _fetch_encoder(encoder, chosen)
    if opened_adapter and opened_adapter.base.encoder_id() != model.encoder_id():
        raise DoesNotFit(
            f"{adapter} is made from {opened_adapter.base.encoder_id()}, and the index by {model.encoder_id()}"
        )
    vector_source = open_vector_source(source, chosen, model, tenant, opened_adapter)
    run = _place(out)
    with run.lock(), spread_over(chosen.runner, run) as spread:
        note(run, {INDEXED: source, "encoder": encoder, "tenant": vector_source.tenant, "adapter": adapter})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        invalidate_if_damaged(run)
        for step in steps(run, vector_source, chosen, opened_adapter, spread):
            run_step(run, step)
        return _finish(run, IndexOrigin(vector_source, model, chosen.index, adapter))


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
    facts, about = read_record(run.store), read_notes(run)
    chosen = recorded_settings(run.store.read(SETTINGS) or b"{}")
    model = _fetch_encoder(about["encoder"], chosen)
    vector_source = open_vector_source(source, chosen, model, facts["tenant"], None)
    if model.encoder_id() != facts["encoder"]["id"]:
        raise DoesNotFit(
            f"the index is by {facts['encoder']['id']}, and {about['encoder']} is {model.encoder_id()} now"
        )
    with run.lock():
        if facts["content"] == vector_source.content():
            return f"Nothing changed. {format_summary(facts)}"
        note(run, {INDEXED: source})
        for step in update_steps(run, vector_source, chosen, facts):
            run_step(run, step)
        return _finish(run, IndexOrigin(vector_source, model, chosen.index, about["adapter"]))


def steps(
    run: Run, vector_source: VectorSource, settings: Settings, adapter: Adapter | None, spread: Spread = here
) -> list[Step]:
    """The stages, in data order."""
    index_settings, seed, location = settings.index, settings.seed, IndexLocation(run.store, settings.index.rerank > 1)
    return [
        Step(TEXTS, call(write_indexed_texts), lambda: _content(vector_source), source=vector_source),
        Step(
            CODEBOOKS,
            call(write_codebooks, settings.semantic_ids, vector_source, spread, seed=seed),
            untracked=("spread",),
        ),
        Step(IDS, call(write_semantic_ids, vector_source, spread), untracked=("spread",)),
        Step(
            BUILD,
            call(
                build_files,
                index_settings.but("rerank", "recall", "queries"),
                vector_source,
                location,
                spread,
                seed=seed,
            ),
            untracked=("spread",),
        ),
        Step(
            PROBES,
            call(exact_neighbors, QueryVectors(vector_source, adapter), queries=index_settings.queries),
            lambda: _content(vector_source),
        ),
        Step(
            RECALL,
            lambda: call(
                measure_recall,
                IndexOpening(run.store, _built(run), index_settings.rerank, index_settings.dimensions),
                target=index_settings.recall,
            ),
        ),
    ]


def update_steps(run: Run, vector_source: VectorSource, settings: Settings, facts: Facts) -> list[Step]:
    """The stages of an update: nothing is fitted."""
    index_settings, trained, location = (
        settings.index,
        facts["codebook"],
        IndexLocation(run.store, settings.index.rerank > 1),
    )
    opening = IndexOpening(run.store, facts["built"], facts["rerank"], index_settings.dimensions)
    return [
        Step(TEXTS, call(update_indexed_texts, trained=trained), lambda: _content(vector_source), source=vector_source),
        Step(IDS, call(update_semantic_ids, vector_source, trained=trained)),
        Step(BUILD, call(update_files, vector_source, location, kind=facts["built"], trained=trained)),
        Step(PROBES, call(update_neighbors, vector_source, trained=trained)),
        Step(RECALL, call(measure_updated, opening, effort=facts["effort"])),
    ]


def open_vector_source(
    source: str, settings: Settings, encoder: EncoderKind, tenant: str | None, adapter: Adapter | None
) -> VectorSource:
    """What is indexed.

    Raises:
        ArtifactError: the run has several tenants and none is named.
    """
    stored_vectors = StoredVectors(encoder, resolve_cache(settings.cache), settings.index.dimensions)
    if source.endswith(FILES):
        return FileSource(source, tenant or NOBODY, stored_vectors)
    run = Run(source)
    made = read_inputs(run)
    training_source = TrainingSource(run, 0, made.is_mined, made.settings.mining.text_characters)
    return RunSource(
        training_source, resolve_tenant(training_source, tenant, [adapter] if adapter else []), stored_vectors
    )


def format_summary(facts: Facts) -> str:
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


def _content(vector_source: VectorSource) -> Mapping[str, str]:
    return {"the texts": vector_source.content()}


def _built(run: Run) -> str:
    manifest = run.manifest(BUILD)
    assert manifest is not None
    return str(manifest.facts[KIND])


def _settings(source: str, values: Mapping[str, Any]) -> Settings:
    return resolve(values) if source.endswith(FILES) else read_inputs(Run(source)).with_overrides(values)


def _fetch_encoder(name: str, settings: Settings) -> EncoderKind:
    encoder_settings = factories.encoder(name, settings)
    encoder_settings.fetch()
    return encoder_settings


def _place(out: str) -> Run:
    run = Run(out)
    if INDEXED not in read_notes(run) and run.store.root_names():
        raise ArtifactError(f"{run.store.url} holds something else than an index; choose another --out")
    return run


def _finish(run: Run, origin: IndexOrigin) -> str:
    facts = record(run, origin)
    run.store.write("views.sql", views_sql(run).encode())
    text = page(run, facts)
    run.store.write(PAGE, text)
    executor().show(run, text.decode)
    return format_summary(facts)
