"""The stage that has the judge look at a share of the mined pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.corpora import Digest, TenantChunks
from darklode.pipeline.judge.pairs import check_known
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.judge.session import JudgingSession, as_numbers, label_counts
from darklode.pipeline.mine.relevance.ranker import OpenTenant, Ranker, Tenants
from darklode.pipeline.mine.relevance.ranking import scores
from darklode.schemas.mined_tables import MINED_VERDICTS
from darklode.schemas.mining import MiningSettings

VERIFY = Stage("verify", 2, ("mined_pairs", "log_queries", "chunks"), ("mined_verdicts",))

BLOCK = 256
"""Mined pairs that are judged together, and recorded together."""
CHUNKS_SEEN = 16
"""So much of a document, from its beginning, the judge looks at."""
GONE = "document is gone"

_DIGITS = 13  # of a hash in hex: 52 bits, as many as a share has

_CHOSEN = """
    CREATE TEMP TABLE chosen AS
    SELECT tenant, date, query_id, positive_id, source, text AS query, substr(sha256(text), 1, 32) AS query_hash,
           (row_number() OVER (PARTITION BY tenant, date ORDER BY query_id, positive_id, source) - 1) // $block AS block
    FROM (SELECT tenant, date, query_id, positive_id, source FROM mined_pairs
          WHERE substr(sha256(concat_ws(chr(0), $seed, tenant, query_id, positive_id)), 1, $digits) < $below)
    LEFT JOIN (SELECT tenant, query_id, text FROM log_queries) USING (tenant, query_id)
"""
_BLOCKS = "SELECT tenant, date, block, count(*) FROM chosen GROUP BY ALL ORDER BY ALL"
_ROWS = """
    SELECT query_id, positive_id, source, query, query_hash FROM chosen
    ORDER BY tenant, date, query_id, positive_id, source
"""


def verify(
    tables: Tables,
    output: Output,
    settings: MiningSettings,
    *,
    judge_for: Callable[[TenantChunks], Judge],
    seed: int,
) -> None:
    """Write what the judge says of a random share of the mined pairs: a pair drawn once is drawn in every night.

    A positive is worth its best chunk, of the first `CHUNKS_SEEN`: it is relevant where one of them is, and null
    where none is and a reply could not be read. A document that is gone has no verdict. One unit is a block of
    pairs of a tenant and day; it stands as long as its pairs, their texts and the judge do. A share of 0 writes
    nothing.

    Args:
        tables: holds `mined_pairs`, `log_queries` and `chunks`.
        output: takes `mined_verdicts`, by tenant, day, query_id and positive_id; its facts count the labels.
        settings: the share.
        judge_for: builds the judge of a tenant from its chunks.
        seed: of the draw.

    Raises:
        ArtifactError: a pair names a query that its tenant does not have.
        ValueError: the judge broke its contract, see `check_replies`.
    """
    if not settings.verify_share:
        return
    with Tenants(tables, Ranker(judge_for, {}, "")) as tenants, tables.connect() as db:
        blocks, total = _drawn(db, settings.verify_share, seed)
        with JudgingSession(output, total) as session:
            for tenant, day, number, pairs in blocks:
                opened = tenants.get(tenant)
                if opened is None:
                    session.counts[GONE] += pairs.num_rows
                else:
                    _DrawnBlock(opened, pairs, session, output).judge(f"{tenant}/{day}/{number}")
    counts = session.counts
    lost = {GONE: counts[GONE]} if counts[GONE] else {}
    output.count(FunnelStep("verify", "drawn pairs", total, "verdicts", total - counts[GONE], lost))
    output.facts |= {name: counts[name] for name in ("relevant", "not_relevant", "unreadable")}


def _drawn(
    connection: duckdb.DuckDBPyConnection, share: float, seed: int
) -> tuple[Iterator[tuple[str, date, int, pa.Table]], int]:
    """The blocks of pairs that are drawn, by tenant, day and number, and how many pairs there are."""
    below = f"{int(share * 16**_DIGITS):0{_DIGITS}x}" if share < 1 else "g"
    connection.execute(_CHOSEN, {"seed": str(seed), "below": below, "digits": _DIGITS, "block": BLOCK})
    blocks = connection.sql(_BLOCKS).fetchall()
    rows = _in_sizes(connection.sql(_ROWS).to_arrow_reader(1 << 13), [size for *_, size in blocks])
    found = ((tenant, day, number, pairs) for (tenant, day, number, _), pairs in zip(blocks, rows, strict=True))
    return found, sum(size for *_, size in blocks)


@dataclass(frozen=True)
class _DrawnBlock:
    """Mined pairs of a tenant and day, and where their verdicts go."""

    opened: OpenTenant
    drawn: pa.Table
    session: JudgingSession
    output: Output

    def judge(self, name: str) -> None:
        """Judge the pairs unless that was done before."""
        member, shown = _shown(self.opened, self.drawn)
        judge, pairs, texts = self.opened.judge, Digest(3), Digest(4)
        pairs.update(self.drawn.select(["query_id", "positive_id", "source"]).columns)
        texts.update(shown.select(["query_id", "chunk_id", "query_hash", "chunk_hash"]).columns)
        basis = f"{judge.judge_id} {pairs.hexdigest()} {texts.hexdigest()}"
        self.session.unit(name, basis, lambda: self._write(member, shown), judge)

    def _write(self, member: NDArray[np.int64], shown: pa.Table) -> Mapping[str, int]:
        verdicts = self._verdicts(member, shown) if shown.num_rows else MINED_VERDICTS.empty()
        self.output.write(MINED_VERDICTS.name, verdicts)
        return label_counts(verdicts["relevant"]) | {GONE: self.drawn.num_rows - verdicts.num_rows}

    def _verdicts(self, member: NDArray[np.int64], shown: pa.Table) -> pa.Table:
        judge = self.opened.judge
        replies = self.session.replies(judge, shown, ahead=0)  # it counts mined pairs, the judge their chunks
        labels = as_numbers(replies["relevant"])
        seen = np.unique(member)
        yes, unread = (np.bincount(member, what)[seen] > 0 for what in (labels == 1, np.isnan(labels)))
        probability = np.full(self.drawn.num_rows, np.nan)
        np.fmax.at(probability, member, scores(replies))
        best = probability[seen]
        own = self.drawn.take(pa.array(seen))
        return MINED_VERDICTS.rows(
            {
                "tenant": pa.repeat(shown["tenant"][0], len(seen)),
                **{column: own[column] for column in ("query_id", "positive_id", "source")},
                "relevant": pa.array(yes, mask=~yes & unread),
                "probability": pa.array(best, mask=np.isnan(best)),
                "judge_id": pa.repeat(judge.judge_id, len(seen)),
            }
        )


def _shown(opened: OpenTenant, drawn: pa.Table) -> tuple[NDArray[np.int64], pa.Table]:
    """The first chunks of each pair's document as rows of `PAIRS`, by query, then chunk; and whose they are."""
    check_known(drawn, opened.chunks.tenant, "query_id", drawn["query"])
    documents = opened.documents
    doc = pc.fill_null(pc.index_in(drawn["positive_id"], opened.doc_ids), -1).to_numpy().astype(np.int64)
    member, row = documents.first_chunks(doc, CHUNKS_SEEN)
    query = drawn["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()[member]
    order = np.lexsort((documents.places[row], query))
    member, row = member[order], row[order]
    return member, opened.pairs(drawn, member, row)


def _in_sizes(reader: pa.RecordBatchReader, sizes: list[int]) -> Iterator[pa.Table]:
    """A reader's rows in tables of the given sizes."""
    rest = reader.schema.empty_table()
    for size in sizes:
        pieces = [rest]
        while sum(piece.num_rows for piece in pieces) < size:
            pieces.append(pa.Table.from_batches([reader.read_next_batch()]))
        joined = pa.concat_tables(pieces).combine_chunks()
        yield joined.slice(0, size)
        rest = joined.slice(size)
