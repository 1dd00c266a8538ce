"""A small run of two tenants with documents of several chunks, which other systems rank by their own ids."""

from collections.abc import Mapping

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.types import Row
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.schemas.tables import CHUNKS
from helpers.runs import put, read
from helpers.searching import queries, searching

CHUNK_TEXTS = [
    ("acme", "manual#a", "manual", "open the box"),
    ("acme", "manual#b", "manual", "reset the router with the button"),
    ("acme", "faq#a", "faq", "billing starts on the first day"),
    ("acme", "faq#b", "faq", "how to reset the password"),
    ("acme", "odd id#a", "odd id", "shipping takes two days"),
    ("zeta", "manual#a", "manual", "another tenant's manual"),
]
QUERIES = [
    ("acme", "q1", "reset the router"),
    ("acme", "q2", "billing"),
    ("acme", "q3", "shipping"),
    ("zeta", "q1", "manual"),
]


def external_run(folder: str) -> Run:
    """The run, with its chunks and queries."""
    run, n = Run(folder), len(CHUNK_TEXTS)
    tenant, chunk_id, doc_id, text = ([row[column] for row in CHUNK_TEXTS] for column in range(4))
    numbers = {"position": [0] * n, "start": [0] * n, "end": [len(value) for value in text]}
    ids = {"tenant": tenant, "chunk_id": chunk_id, "doc_id": doc_id}
    put(run, "chunks", CHUNKS.rows(ids | {"text": text, "content_hash": chunk_id} | numbers))
    put(run, "queries", queries(QUERIES))
    return run


def rankings(run: Run, systems: Mapping[str, Factory], depth: int = 420) -> dict[str, list[str]]:
    """Search; the chunk ids of each list, by `tenant/query`, of all systems."""
    searching(run, systems, depth)
    found: dict[str, list[str]] = {}
    for row in read(run, "rankings"):
        found.setdefault(f"{row['tenant']}/{row['query_id']}", []).append(row["chunk_id"])
    return found


def rejects(run: Run) -> list[Row]:
    """Rows of `rejects`, in their order."""
    return [
        {name: row[name] for name in ("tenant", "id", "file", "line", "reason", "payload")}
        for row in read(run, "rejects")
    ]
