"""What determines an adapter's vectors, what it was trained on, and what its probe queries return; recorded when it is
saved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.base.chunk_texts import Digest
from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.models.local import fetch_hint, locate
from darklode.pipeline.base.types import Facts
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.release.adapter import RECORD_FILE, Adapter, read_record, weights_hash

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Floats
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.vectors import FrozenIndex

DEPTH = 10
N_PROBE_QUERIES, N_PROBE_TEXTS = 16, 16
"""Probe queries and probe texts per run."""

TRAINING_TEXTS_SQL = "SELECT DISTINCT text FROM adaptation_queries WHERE split = 'train' ORDER BY text"

DATA_TABLES = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
SCORE_COLUMNS = ("part", "queries", "difference", "low", "high", "validation_queries")


def record(  # noqa: PLR0913, PLR0917 (what is recorded)
    run: Run,
    base: BaseEncoder,
    settings: SentenceTransformersSettings,
    verdict: Facts,
    learned: str,
    form: str = "encoder",
    pooled: Facts | None = None,
) -> None:
    """Write `adapter.json` of the saved folder, unless it is up to date.

    Args:
        run: a run with complete stages and the saved folder.
        base: the encoder of the index, with the runs.
        settings: settings of that encoder.
        verdict: tenant, shipped, reason and `SCORE_COLUMNS`.
        learned: fingerprint of the training rows.
        form: encoder, or head if saved alone.
        pooled: evidence of other tenants that it is released on; None: the tenant's own.
    """
    tables, adapter = run.tables(*DATA_TABLES), Adapter(run.store, {"form": form}, base.queries)
    weights = weights_hash(run.store, adapter.files)
    name = key_of(
        verdict["tenant"],
        weights,
        base.identity,
        learned,
        [source.run.store.url for source in base.sources],
        *([pooled] if pooled else []),
    )
    before = read_record(run.store)
    if before.get("id") == name:  # the same vectors, whatever else was decided or measured since
        dimensions, indexes = before["base"]["dimensions"], before["indexes"]
    else:
        frozen = base.open(tables)
        dimensions = frozen.dimensions
        indexes = [_index(base, frozen, adapter, tables, source) for source in base.sources]
    facts = {
        "id": name,
        "form": form,
        "tenant": verdict["tenant"],
        "shipped": verdict["shipped"],
        "reason": verdict["reason"],
        "label_bias": verdict.get("label_bias"),
        "pooled": pooled,
        "scores": {name: verdict[name] for name in SCORE_COLUMNS},
        "base": identity(settings) | {"dimensions": dimensions},
        "weights": weights,
        "data": learned,
        "learned": sorted(
            {*tables.sql(TRAINING_TEXTS_SQL)["text"].to_pylist(), *(base.start.learned if base.start else ())}
        ),
        "indexes": indexes,
    }
    data = json.dumps(facts, indent=1, ensure_ascii=False).encode()
    if run.store.read(RECORD_FILE) != data:
        run.store.write(RECORD_FILE, data)


def identity(settings: SentenceTransformersSettings) -> Facts:
    """Everything that determines an encoder's vectors, by name; `settings` can open it.

    Raises:
        MissingPart: the encoder is not on this machine.
    """
    located = locate(settings)
    if located is None:
        raise MissingPart(f"model {settings.model} is not on this machine: {fetch_hint(settings)}")
    return {
        "encoder": located.name,
        "weights": located.revision,
        "pooling": pooling(located.folder),
        "query prompt": settings.query_prompt,
        "document prompt": settings.document_prompt,
        "tokens": settings.max_seq_length or "all",
        "cut": settings.truncate_dim or "none",
        "precision": settings.dtype,
        "settings": settings.model_dump(mode="json"),
    }


def _module_number(config: Path) -> int:
    """Place of a module in its encoder, such as 1 of `1_Pooling/config.json` or `query_1_Pooling/config.json`."""
    return next((int(part) for part in config.parent.name.split("_") if part.isdigit()), 0)


def pooling(folder: Path) -> Facts:
    """Pooling mode of a model folder; mean if not specified."""
    by_place = sorted(folder.glob("*_Pooling/config.json"), key=_module_number)
    for path in by_place:  # the first one pools the encoder's tokens; another may pool term vectors
        return {name: value for name, value in json.loads(path.read_text()).items() if value is not False}
    return {"pooling_mode": "mean"}


def fingerprint(tables: Tables, names: Sequence[str] = DATA_TABLES) -> str:
    """Fingerprint of the rows that an adapter was trained on."""
    entries = []
    for name in names:
        rows = tables.read(name)
        digest = Digest(rows.num_columns)
        digest.update(pc.fill_null(pc.cast(column, pa.string()), "\x00") for column in rows.columns)
        entries.append(digest.hexdigest())
    return key_of(*entries)


def index_digest(text_ids: pa.ChunkedArray, hashes: pa.ChunkedArray) -> str:
    """Fingerprint of the texts of an index, independent of their order."""
    digest = Digest(2)
    digest.update(pa.table({"text_id": text_ids, "hash": hashes}).sort_by("text_id").columns)
    return digest.hexdigest()


def mean_shift(base: Floats, adapted: Floats) -> float:
    """Mean of 1 − cosine between base and adapted unit vectors of queries; 0 if there are none."""
    return max(0.0, float(np.mean(1 - np.einsum("ij,ij->i", base, adapted, dtype=np.float64)))) if len(base) else 0.0


def _index(base: BaseEncoder, frozen: FrozenIndex, adapter: Adapter, tables: Tables, source: TrainingSource) -> Facts:
    """A run's texts: digest, a sample, and the results of probe queries."""
    texts = frozen.texts.filter(pc.equal(frozen.texts["index"], source.number))
    ids = source.own_ids(texts["text_id"])
    spaced = pa.array(
        np.unique(np.linspace(0, len(ids) - 1, N_PROBE_TEXTS).astype(np.int64)) if len(ids) else [], pa.int64()
    )
    queries = tables.read("adaptation_queries", ["query_id", "index", "text"])
    query_texts = queries.filter(pc.equal(queries["index"], source.number))["text"][:N_PROBE_QUERIES].to_pylist()
    return {
        "run": source.run.store.url,
        "texts": len(ids),
        "digest": index_digest(ids, texts["content_hash"]),
        "probes": ids.take(spaced).to_pylist(),
        **_top_documents(base, frozen, adapter, query_texts, source),
    }


def _top_documents(
    base: BaseEncoder, frozen: FrozenIndex, adapter: Adapter, query_texts: list[str], source: TrainingSource
) -> Facts:
    vectors = adapter.encode(query_texts)
    rows, scores = frozen.search(vectors, np.full(len(query_texts), source.number), DEPTH)
    facts = []
    for text, text_rows, row_scores in zip(query_texts, rows, scores, strict=True):
        texts_found = frozen.texts.take(pa.array(text_rows[text_rows >= 0]))
        ids = source.own_ids(texts_found["text_id"])
        rounded_scores = [round(float(value), 6) for value in row_scores[text_rows >= 0]]
        names = ("text_id", "hash", "score")
        rows_found = zip(ids.to_pylist(), texts_found["content_hash"].to_pylist(), rounded_scores, strict=True)
        facts.append({"text": text, "found": [dict(zip(names, values, strict=True)) for values in rows_found]})
    return {"moved": mean_shift(base.queries(query_texts), vectors), "queries": facts}
