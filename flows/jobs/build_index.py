"""build-index: semantic ids and a compressed vector index with measured recall; update-index brings it up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from darklode.flows import factories
from darklode.flows.config import resolve
from darklode.flows.jobs.job import Job
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.runs import output_run, read_inputs, read_run, read_settings, update_inputs, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.flows.vector_source import (
    DEFAULT_TENANT,
    VECTOR_FILE_SUFFIXES,
    open_index_source,
    open_tenant_sources,
    open_vector_source,
)
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import CommandLineError, DoesNotFit
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.base.types import Facts
from darklode.pipeline.index.build import (
    INDEX_STAGE,
    KIND_FACT,
    IndexLocation,
    build_files,
    invalidate_if_damaged,
    update_files,
)
from darklode.pipeline.index.page import PAGE, page
from darklode.pipeline.index.probes import PROBES_STAGE, QueryVectors, exact_neighbors, update_neighbors
from darklode.pipeline.index.recall import RECALL_STAGE, IndexOpening, measure_recall, measure_updated
from darklode.pipeline.index.record import IndexOrigin, read_record, record
from darklode.pipeline.index.semantic_ids import (
    CODEBOOKS_STAGE,
    SEMANTIC_IDS_STAGE,
    update_semantic_ids,
    write_codebooks,
    write_semantic_ids,
)
from darklode.pipeline.index.source import FileSource, StoredVectors, VectorSource
from darklode.pipeline.index.texts import INDEXED_TEXTS_STAGE, update_indexed_texts, write_indexed_texts
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.release.adapter import Adapter
from darklode.schemas.run_inputs import IndexInputs
from darklode.schemas.settings import Settings


def build_index(  # noqa: PLR0913, PLR0917 (a flow: its parameters are those of the command)
    source: str,
    encoder: str,
    out: str,
    settings: dict[str, Any] | None = None,
    tenant: str | None = None,
    adapter: str | None = None,
    tenants: str | None = None,
) -> str:
    """Assign semantic ids, build a compressed index of the vectors, and measure its recall.

    Args:
        source: folder or s3:// prefix of a build or a mined run, or a file of vectors.
        encoder: encoder of the vectors: its name in the settings, or a sentence-transformers model.
        out: folder or s3:// prefix of the index.
        settings: overrides of the run's settings.
        tenant: tenant whose texts are indexed; None: the only one.
        adapter: folder of `darklode adapt`; recall is measured with its queries, too.
        tenants: several tenants for one index, separated by commas, or `all`; every search names its tenant.

    Returns:
        A summary of the index.

    Raises:
        CommandLineError: `tenants` with a tenant or an adapter.
        DoesNotFit: the adapter is not for this encoder.
        MissingPart: faiss or the encoder is missing.
    """
    if tenants is not None and (tenant or adapter):
        raise CommandLineError("--tenants excludes --tenant and --adapter")
    resolved = _resolve_settings(source, settings or {})
    opened_adapter = Adapter.open(adapter) if adapter else None
    model = _fetch_encoder(encoder, resolved)
    if opened_adapter and opened_adapter.base.encoder_id() != model.encoder_id():
        raise DoesNotFit(
            f"{adapter} was adapted from {opened_adapter.base.encoder_id()}; the index uses {model.encoder_id()}"
        )
    if tenants is not None:
        vector_source = open_tenant_sources(source, resolved, model, tenants)
    else:
        vector_source = open_vector_source(source, resolved, model, tenant, opened_adapter)
    run = output_run(out, IndexInputs)
    with run.lock(), spread_over(resolved.runner, run) as spread:
        only_tenant = None if tenants is not None else vector_source.tenants[0]
        inputs = IndexInputs(source=source, encoder=encoder, tenant=only_tenant, tenants=tenants, adapter=adapter)
        write_run(run, inputs, resolved)
        invalidate_if_damaged(run)
        for step in steps(run, vector_source, resolved, opened_adapter, spread):
            run_step(run, step)
        return _finish(run, IndexOrigin(vector_source, model, resolved.index, adapter))


def update_index(folder: str, source: str) -> str:
    """Bring an index up to date with added, changed and deleted texts; codebooks are not fitted again.

    Args:
        folder: folder of `build_index`.
        source: the run or the file of vectors in its current state.

    Returns:
        A summary: what changed, recall compared with the last training, and whether to build the index again.

    Raises:
        ArtifactError: there is no finished index.
        DoesNotFit: the name of the encoder now means another model.
    """
    run = Run(folder)
    facts, inputs, settings = read_record(run.store), read_inputs(run), read_settings(run)
    assert isinstance(inputs, IndexInputs)  # a folder with an index's record
    model = _fetch_encoder(inputs.encoder, settings)
    vector_source = open_index_source(source, inputs, settings, model)
    if model.encoder_id() != facts["encoder"]["id"]:
        raise DoesNotFit(
            f"{folder} was built with {facts['encoder']['id']}; {inputs.encoder} is now {model.encoder_id()}"
        )
    with run.lock():
        if facts["content"] == vector_source.content():
            return f"Nothing changed. {format_summary(facts)}"
        update_inputs(run, source=source)
        for step in update_steps(run, vector_source, settings, facts):
            run_step(run, step)
        return _finish(run, IndexOrigin(vector_source, model, settings.index, inputs.adapter))


def steps(
    run: Run, vector_source: VectorSource, settings: Settings, adapter: Adapter | None, spread: Spread = here
) -> list[Step]:
    """The steps in data order."""
    index_settings, seed = settings.index, settings.seed
    location = IndexLocation(run.store, index_settings.refine_factor > 1)
    return [
        Step(INDEXED_TEXTS_STAGE, call(write_indexed_texts), lambda: _content(vector_source), source=vector_source),
        Step(
            CODEBOOKS_STAGE,
            call(write_codebooks, settings.semantic_ids, vector_source, spread, seed=seed),
            untracked=("spread",),
        ),
        Step(SEMANTIC_IDS_STAGE, call(write_semantic_ids, vector_source, spread), untracked=("spread",)),
        Step(
            INDEX_STAGE,
            call(
                build_files,
                index_settings.but("refine_factor", "target_recall", "tuning_queries"),
                vector_source,
                location,
                spread,
                seed=seed,
            ),
            untracked=("spread",),
        ),
        Step(
            PROBES_STAGE,
            call(exact_neighbors, QueryVectors(vector_source, adapter), queries=index_settings.tuning_queries),
            lambda: _content(vector_source),
        ),
        Step(
            RECALL_STAGE,
            lambda: call(
                measure_recall,
                IndexOpening(run.store, _index_kind(run), index_settings.refine_factor, index_settings.truncate_dim),
                target=index_settings.target_recall,
            ),
        ),
    ]


def update_steps(run: Run, vector_source: VectorSource, settings: Settings, facts: Facts) -> list[Step]:
    """The steps of an update: nothing is fitted."""
    index_settings = settings.index
    trained = facts["codebook"]
    location = IndexLocation(run.store, index_settings.refine_factor > 1)
    opening = IndexOpening(run.store, facts["built"], facts["rerank"], index_settings.truncate_dim)
    return [
        Step(
            INDEXED_TEXTS_STAGE,
            call(update_indexed_texts, trained=trained),
            lambda: _content(vector_source),
            source=vector_source,
        ),
        Step(SEMANTIC_IDS_STAGE, call(update_semantic_ids, vector_source, trained=trained)),
        Step(INDEX_STAGE, call(update_files, vector_source, location, kind=facts["built"], trained=trained)),
        Step(PROBES_STAGE, call(update_neighbors, vector_source, trained=trained)),
        Step(RECALL_STAGE, call(measure_updated, opening, effort=facts["effort"])),
    ]


def format_summary(facts: Facts) -> str:
    """Size, kind, speed and recall of an index, in some sentences."""
    recalls = [_format_recall(facts, part) for part in facts["recall"]]
    speed, size = facts["queries per second"], facts["bytes per vector"]["in memory"]
    about = f"{facts['count']:,} texts, {facts['built']}, {size} bytes per vector in memory"
    few = "" if facts["built"] == facts["kind"] else f" ({facts['kind']} needs more texts)"
    return " ".join([f"{about}{few}; {speed or 0:,.0f} queries per second.", *recalls, *facts["advice"]])


def _format_recall(facts: Facts, part: str) -> str:
    now = {depth: row["recall"] for depth, row in facts["recall"][part].items()}
    since = now["100"] - facts["at training"]["recall"][part]["100"]["recall"]
    return (
        f"{part[0].upper()}{part[1:]} queries: recall@10 {now['10']:.3f}, recall@100 {now['100']:.3f} "
        f"({since:+.3f} since the last training)."
    )


def _content(vector_source: VectorSource) -> Mapping[str, str]:
    return {"the texts": vector_source.content()}


def _index_kind(run: Run) -> str:
    manifest = run.manifest(INDEX_STAGE)
    assert manifest is not None
    return str(manifest.facts[KIND_FACT])


def _resolve_settings(source: str, values: Mapping[str, Any]) -> Settings:
    return resolve(values) if source.endswith(VECTOR_FILE_SUFFIXES) else read_run(Run(source)).with_overrides(values)


def _fetch_encoder(name: str, settings: Settings) -> EncoderKind:
    encoder_settings = factories.encoder(name, settings)
    encoder_settings.fetch()
    return encoder_settings


def _finish(run: Run, origin: IndexOrigin) -> str:
    facts = record(run, origin)
    publish(run, page(run, facts), PAGE)
    return format_summary(facts)


def _folder_steps(run: Run, inputs: IndexInputs, settings: Settings) -> list[Step]:
    """The steps by name; neither the encoder nor the source is opened."""
    stored = StoredVectors(SentenceTransformersSettings(model=inputs.encoder), settings.cache, None)
    return steps(run, FileSource(inputs.source, inputs.tenant or DEFAULT_TENANT, stored), settings, None)


JOB = Job("build-index", build_index, IndexInputs, _folder_steps)
UPDATE_JOB = Job("update-index", update_index)
