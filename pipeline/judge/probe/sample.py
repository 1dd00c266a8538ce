"""Draw pairs of a run for the probes, and alter their texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.judge.port import PAIRS
from darklode.pipeline.judge.probe.alterations import ALTERATIONS, ProbeText
from darklode.pipeline.judge.probe.kinds import BOTH, OTHER_TENANT, POSITIVE, PROBE_KINDS, RANDOM_CHUNK

CANDIDATES = 50
"""Chunks drawn per tenant, from which a query gets one that no retriever found for it."""

# One pair per query, so that the probes of a kind are independent. The salt decides which queries and pairs.
LABELLED_PAIRS_SQL = """
    SELECT tenant, query_id, tenant AS chunk_tenant,
           min_by(chunk_id, sha256(concat_ws('/', $1, query_id, chunk_id))) AS chunk_id
    FROM verdicts WHERE relevant = $2
    GROUP BY tenant, query_id ORDER BY sha256(concat_ws('/', $1, tenant, query_id)), tenant, query_id LIMIT $3
"""

UNPOOLED_PAIRS_SQL = f"""
    WITH chosen AS (
        FROM (SELECT DISTINCT tenant, query_id FROM verdicts)
        ORDER BY sha256(concat_ws('/', $1, tenant, query_id)), tenant, query_id LIMIT $3
    ), candidates AS (
        SELECT tenant, chunk_id FROM chunks
        QUALIFY row_number() OVER (
            PARTITION BY tenant ORDER BY sha256(concat_ws('/', $1, chunk_id)), chunk_id
        ) <= {CANDIDATES}
    )
    SELECT q.tenant, q.query_id, c.tenant AS chunk_tenant, c.chunk_id
    FROM chosen q JOIN candidates c ON (c.tenant = q.tenant) = $2
        ANTI JOIN pool p ON p.tenant = q.tenant AND p.query_id = q.query_id AND p.chunk_id = c.chunk_id
    QUALIFY row_number() OVER (
        PARTITION BY q.tenant, q.query_id
        ORDER BY sha256(concat_ws('/', $1, q.query_id, c.tenant, c.chunk_id)), c.tenant, c.chunk_id
    ) = 1
    ORDER BY sha256(concat_ws('/', $1, q.tenant, q.query_id)), q.tenant, q.query_id
"""


@dataclass(frozen=True)
class Probe:
    """A pair of the run and its altered texts.

    Attributes:
        kind: kind of probe.
        variant: rule by which the texts were altered.
        tenant: tenant of the query, whose judge replies.
        query_id: the query's id.
        chunk_tenant: tenant of the chunk.
        chunk_id: the chunk's id.
        unchanged: texts of the pair.
        content_hash: hash of the unchanged chunk.
        altered: texts that the judge should see through.
    """

    kind: str
    variant: str
    tenant: str
    query_id: str
    chunk_tenant: str
    chunk_id: str
    unchanged: ProbeText
    content_hash: str
    altered: ProbeText

    def unchanged_row(self) -> dict[str, str | None]:
        """A row of `PAIRS`, equal to the pair's row in judging, so that the ledger has its verdict."""
        return self._row(self.unchanged, self.chunk_id, self.content_hash)

    def altered_row(self) -> dict[str, str | None]:
        """A row of `PAIRS`; a repeated pair has other ids and another hash, so that its verdict is asked for again."""
        if self.kind == "repeated":
            other_hash = hashlib.sha256(f"repeated {self.content_hash}".encode()).hexdigest()[:32]
            return self._row(self.altered, f"repeated-{other_hash}", other_hash) | {"query_id": f"{self.query_id}-2"}
        before, after = self.unchanged, self.altered
        is_same_chunk = (before.title, before.heading, before.text) == (after.title, after.heading, after.text)
        return self._row(after, self.chunk_id, self.content_hash if is_same_chunk else after.chunk_hash)

    def _row(self, texts: ProbeText, chunk_id: str, chunk_hash: str) -> dict[str, str | None]:
        ids = {"tenant": self.tenant, "query_id": self.query_id, "chunk_id": chunk_id, "query": texts.query}
        hashes = {"query_hash": texts.query_hash, "chunk_hash": chunk_hash}
        return ids | hashes | {"title": texts.title, "heading": texts.heading, "text": texts.text}


def pairs_of(rows: Iterable[Mapping[str, str | None]]) -> pa.Table:
    """Rows of `PAIRS`, in the given order."""
    return pa.Table.from_pylist(list(rows), schema=PAIRS)


def draw_probes(tables: Tables, kinds: Sequence[str], n: int, seed: int) -> dict[str, list[Probe]]:
    """Draw up to `n` probes of each kind, each of another query; pairs that no rule of the kind changes are left out.

    Args:
        tables: must contain `queries`, `chunks`, `pool` and `verdicts`.
        kinds: names of kinds of probes.
        n: maximum number of probes per kind.
        seed: random seed.
    """
    drawn = {kind: _draw(tables, PROBE_KINDS[kind].drawn_from, n, seed) for kind in kinds}
    texts = _Texts(tables, [pair for pairs in drawn.values() for pair in pairs])
    probes = {kind: [texts.probe(kind, number, pair) for number, pair in enumerate(drawn[kind])] for kind in kinds}
    return {kind: [probe for probe in own if probe is not None] for kind, own in probes.items()}


_Pair = Mapping[str, str]


def _draw(tables: Tables, drawn_from: str, n: int, seed: int) -> list[_Pair]:
    """Rows of tenant, query_id, chunk_tenant and chunk_id."""
    salt = f"{seed} {drawn_from}"
    if drawn_from in {RANDOM_CHUNK, OTHER_TENANT}:
        parameters = [salt, drawn_from == RANDOM_CHUNK, n]
        rows: list[_Pair] = tables.sql(UNPOOLED_PAIRS_SQL, parameters).to_pylist()
        return rows
    labels = (True, False) if drawn_from == BOTH else (drawn_from == POSITIVE,)
    positives, *negatives = (tables.sql(LABELLED_PAIRS_SQL, [salt, label, n]).to_pylist() for label in labels)
    # Both lists have their queries in the same order: from opposite ends, each list gets half of them.
    return _alternate([positives, *(pairs[::-1] for pairs in negatives)], n)


def _alternate(lists: Sequence[Sequence[_Pair]], n: int) -> list[_Pair]:
    """Take pairs from the lists in turn, each query once, until there are `n` or all are taken."""
    drawn: dict[tuple[str, str], _Pair] = {}
    for pair in (pair for row in zip_longest(*lists) for pair in row if pair is not None):
        if len(drawn) < n:
            drawn.setdefault((pair["tenant"], pair["query_id"]), pair)
    return list(drawn.values())


class _Texts:
    """Texts of the drawn pairs."""

    def __init__(self, tables: Tables, pairs: Sequence[_Pair]) -> None:
        schema = pa.schema([(name, pa.string()) for name in ("tenant", "query_id", "chunk_tenant", "chunk_id")])
        with tables.connect() as connection:
            connection.register("drawn_pairs", pa.Table.from_pylist([dict(pair) for pair in pairs], schema=schema))
            queries = connection.sql("SELECT * FROM queries SEMI JOIN drawn_pairs USING (tenant, query_id)")
            self._queries = {(row["tenant"], row["query_id"]): row["text"] for row in _rows(queries)}
            chunks = connection.sql(
                "SELECT * FROM chunks c SEMI JOIN drawn_pairs p "
                "ON p.chunk_tenant = c.tenant AND p.chunk_id = c.chunk_id"
            )
            self._chunks = {(row["tenant"], row["chunk_id"]): row for row in _rows(chunks)}
            connection.unregister("drawn_pairs")

    def probe(self, kind: str, number: int, pair: _Pair) -> Probe | None:
        """Alter a pair; the kind's rules that change it are used in turn. None if none does."""
        chunk = self._chunks[pair["chunk_tenant"], pair["chunk_id"]]
        query = self._queries[pair["tenant"], pair["query_id"]]
        texts = ProbeText(query, chunk["title"], chunk["heading"], chunk["text"])
        alterations = [alteration for alteration in ALTERATIONS[kind] if alteration.changes(texts)]
        if not alterations:
            return None
        alteration = alterations[number % len(alterations)]
        return Probe(
            kind,
            alteration.variant,
            pair["tenant"],
            pair["query_id"],
            pair["chunk_tenant"],
            pair["chunk_id"],
            texts,
            chunk["content_hash"],
            alteration.apply(texts),
        )


def _rows(relation: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()
    return rows
