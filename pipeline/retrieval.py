"""What retrieval took, per retriever: from the records of a run's latest search."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa

from pipeline.artifacts import Manifest, Run
from pipeline.search import SEARCH


def _field(name: str, type_: pa.DataType, description: str) -> pa.Field:
    return pa.field(name, type_, metadata={"description": description})


RETRIEVAL = pa.schema(
    [
        _field("retriever", pa.string(), "its name"),
        _field("chunks", pa.int64(), "chunks searched"),
        _field("chunks_per_second", pa.float64(), "encoded, or indexed where there is no encoder; null: none were"),
        _field("queries_per_second", pa.float64(), "asked, over all tenants"),
        _field("encoded", pa.int64(), "texts given to the encoder; null: there is none"),
        _field("cache_hits", pa.float64(), "share of the texts whose vectors were at hand, 0 to 1"),
        _field("bytes_cached", pa.int64(), "of the new vectors"),
        _field("cost", pa.float64(), "money spent on them, by the encoder's price"),
        _field("gpu", pa.float64(), "share of the encoding in which the GPUs computed; null: none, or not known"),
        _field("recall", pa.float64(), "of an approximate index against exact search; null: the search is exact"),
    ]
)


def retrieval(run: Run) -> pa.Table:
    """One row per retriever, in the order of the rankings; empty before the first search.

    A tenant whose lists stood counts with what they took when they were made, an encoder with the latest search alone.
    """
    return retrieval_of(run.manifest(SEARCH))


def retrieval_of(manifest: Manifest | None) -> pa.Table:
    """The same from the record of the search."""
    efforts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for unit in manifest.units.values() if manifest else ():
        efforts[unit["facts"]["retriever"]].append(unit["facts"])
    embedding = manifest.facts.get("embedding", {}) if manifest else {}
    rows = [_row(name, found, embedding.get(name)) for name, found in efforts.items()]
    return pa.Table.from_pylist(rows, RETRIEVAL)


def _row(name: str, efforts: list[dict[str, Any]], work: dict[str, Any] | None) -> dict[str, Any]:
    sums = {key: sum(effort[key] for effort in efforts) for key in ("chunks", "queries", "ready", "searching")}
    recalls = [effort["recall"] for effort in efforts if effort["recall"] is not None]
    row = {
        "retriever": name,
        "chunks": sums["chunks"],
        "chunks_per_second": _rate(sums["chunks"], sums["ready"]),
        "queries_per_second": _rate(sums["queries"], sums["searching"]),
        "recall": min(recalls, default=None),
    }
    return row if work is None else row | _encoder(work)


def _encoder(work: dict[str, Any]) -> dict[str, Any]:
    return {
        "chunks_per_second": _rate(work["encoded"], work["seconds"]),
        "encoded": work["encoded"],
        "cache_hits": _rate(work["texts"] - work["encoded"], work["texts"]),
        "bytes_cached": work["bytes"],
        "cost": work["cost"],
        "gpu": work["gpu"],
    }


def _rate(count: float, whole: float) -> float | None:
    return count / whole if whole else None
