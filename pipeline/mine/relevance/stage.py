"""The stage `relevance`: rank documents for each query of the log, by day and tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Part, Stage, Tables, key_of
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.judge.port import QUERY_BLOCK, Judge
from darklode.pipeline.judge.session import JudgingSession, judge_facts
from darklode.pipeline.mine.relevance.ranker import OpenTenant, OpenTenants, Ranker
from darklode.pipeline.mine.relevance.ranking import (
    Candidates,
    RankedDocuments,
    negatives,
    positives,
    rank_candidates,
    scores,
    top_candidates,
)
from darklode.schemas.mined_tables import RELEVANCE_EVIDENCE
from darklode.schemas.mining import RelevanceSettings

SEARCH_BLOCK = 1024

_Ints = NDArray[np.int64]

NO_DOCUMENTS, NO_CANDIDATE, NO_POSITIVE = "tenant has no documents", "no candidate", "no positive probability"

_QUERIES = """
    SELECT tenant, query_id, normal_form AS query, substr(sha256(normal_form), 1, 32) AS query_hash
    FROM that_day ORDER BY tenant, query_id
"""


RELEVANCE = Stage("relevance", 4, ("log_queries",), ("relevance_evidence",), consults=("chunks",))
"""`chunks` is not an input: `Ranker.version` identifies the frozen state of the chunks."""


def relevance(tables: Tables, output: Output, settings: RelevanceSettings, *, ranker: Ranker, seed: int) -> None:
    """Write each query's best document, and the documents ranked K + 1 to T in random order as its negatives.

    Each retriever returns its top T documents by their best chunks. The judge scores these chunks, and a document has
    the score of its best chunk (`scores`); ties are broken by fused retrieval score, then doc_id. A document without a
    readable reply is not ranked; a query without a score above 0 has no row. The ranker `none` writes nothing.

    One unit per day of `log_queries`; a day is recomputed if its queries or `Ranker.version` change. Tenants stay open
    across days up to `OPEN_CHUNKS`; otherwise memory grows with a day's queries.

    Args:
        tables: holds `log_queries`, in parts of one day each, and `chunks`.
        output: `relevance_evidence`, by day, tenant and query_id; its facts count positives without a negative.
        settings: ranker, K and T.
        ranker: its retrievers find candidates, its judge scores them.
        seed: of the random order.

    Raises:
        ValueError: replies break the judge's contract (`check_replies`).

    Source: ScalingNote, 4.1.
    """
    if settings.ranker == "none":
        return
    total = tables.rows("log_queries")
    session = JudgingSession(output, total, progress_count="queries")
    with OpenTenants(tables, ranker) as tenants, session, tables.connect() as connection:
        by_day = DayRanker(tenants, session, connection, settings, seed)
        for day, parts in tables.by_day("log_queries").items():
            basis = key_of(sorted(part.sha256 for part in parts), ranker.version)
            session.unit(day, basis, partial(_day, tables, output, by_day, parts))
        _record(output, session.counts, tenants.judges)


def _day(tables: Tables, output: Output, by_day: DayRanker, parts: Sequence[Part]) -> Mapping[str, int]:
    counts = Counter[str]()
    _write(output, by_day.evidence(pa.concat_tables(tables.part(part) for part in parts), counts))
    return counts


def _write(output: Output, blocks: Iterable[pa.Table]) -> None:
    waiting = RELEVANCE_EVIDENCE.empty()
    for block in blocks:
        waiting = pa.concat_tables([waiting, block])
        if waiting.num_rows >= PART_ROWS:
            output.write(RELEVANCE_EVIDENCE.name, waiting)
            waiting = RELEVANCE_EVIDENCE.empty()
    output.write(RELEVANCE_EVIDENCE.name, waiting)


def _record(output: Output, counts: Counter[str], judges: Iterable[Judge]) -> None:
    lost = {reason: counts[reason] for reason in (NO_DOCUMENTS, NO_CANDIDATE, NO_POSITIVE) if counts[reason]}
    output.count(FunnelStep("relevance", "queries", counts["queries"], "positives", counts["positives"], lost))
    output.facts |= {"without_negative": counts["without_negative"], **judge_facts(judges)}


@dataclass(frozen=True)
class DayRanker:
    """Ranks the queries of a day.

    Attributes:
        tenants: documents, retrievers and judges.
        session: runs the judges.
        connection: any.
        settings: K and T.
        seed: of the random order.
    """

    tenants: OpenTenants
    session: JudgingSession
    connection: duckdb.DuckDBPyConnection
    settings: RelevanceSettings
    seed: int

    def evidence(self, rows: pa.Table, counts: Counter[str]) -> Iterator[pa.Table]:
        """Rows of `relevance_evidence`, by tenant and query_id, block by block.

        Args:
            rows: a day of `log_queries`.
            counts: gets the numbers of queries, positives, lost queries by reason, and positives `without_negative`.
        """
        self.connection.register("that_day", rows)
        queries = self.connection.sql(_QUERIES).to_arrow_table().combine_chunks()
        counts["queries"] += queries.num_rows
        first = 0
        for tenant in pc.value_counts(queries["tenant"]).to_pylist():
            end = first + tenant["counts"]
            opened = self.tenants.get(tenant["values"])
            if opened is None:
                counts[NO_DOCUMENTS] += tenant["counts"]
            else:
                for start in range(first, end, SEARCH_BLOCK):
                    block = queries.slice(start, min(SEARCH_BLOCK, end - start))
                    candidates = top_candidates(
                        opened.retrievers, block["query"].to_pylist(), opened.documents, self.settings.top_t
                    )
                    ranking = rank_candidates(candidates, self._scores(opened, block, candidates, start))
                    yield self._choose_pairs(opened, block, candidates, ranking, counts)
            first = end

    def _scores(self, opened: OpenTenant, block: pa.Table, candidates: Candidates, before: int) -> NDArray[np.float64]:
        """Each pair's score; the judge gets `QUERY_BLOCK` queries at a time."""
        score_blocks = [np.empty(0)]
        for first in range(0, block.num_rows, QUERY_BLOCK):
            some = candidates.slice_queries(first, first + QUERY_BLOCK)
            progress = before + first
            self.session.report(opened.judge, progress)
            if len(some.row):
                pairs = opened.pairs(block, some.query, some.row)
                score_blocks.append(scores(self.session.replies(opened.judge, pairs, unit_progress=progress)))
        return np.concatenate(score_blocks)

    def _choose_pairs(
        self,
        opened: OpenTenant,
        block: pa.Table,
        candidates: Candidates,
        ranking: RankedDocuments,
        counts: Counter[str],
    ) -> pa.Table:
        """Rows of `relevance_evidence` of a block."""
        best_rows, query_ids = positives(ranking), block["query_id"].combine_chunks()
        names = opened.chunks.tenant, query_ids, opened.doc_ids
        negative_query, drawn = negatives(self.connection, ranking, names, self.settings, self.seed)
        at, drawn = _rows_of_queries(ranking.query[best_rows], negative_query, drawn)
        counts_of = np.bincount(at, minlength=len(best_rows))
        searched = len(np.unique(candidates.query))
        counts.update({"positives": len(best_rows), "without_negative": int((counts_of == 0).sum())})
        counts.update({NO_CANDIDATE: block.num_rows - searched, NO_POSITIVE: searched - len(best_rows)})
        doc, score = pa.array(ranking.doc), pa.array(ranking.score)
        ends = pa.array(np.concatenate([[0], counts_of.cumsum()]), pa.int32())
        listed = {"ids": opened.doc_ids.take(doc.take(drawn)), "scores": score.take(drawn).cast(pa.float32())}
        return RELEVANCE_EVIDENCE.rows(
            {
                "tenant": pa.repeat(opened.chunks.tenant, len(best_rows)),
                "query_id": query_ids.take(pa.array(ranking.query[best_rows])),
                "positive_id": opened.doc_ids.take(doc.take(pa.array(best_rows))),
                "positive_score": score.take(pa.array(best_rows)),
                "negative_ids": pa.ListArray.from_arrays(ends, listed["ids"]),
                "negative_scores": pa.ListArray.from_arrays(ends, listed["scores"]),
            }
        )


def _rows_of_queries(query_rows: _Ints, query: _Ints, row_index: _Ints) -> tuple[_Ints, _Ints]:
    """Restrict rows to the queries in `query_rows`; returns indices into `query_rows`, and the rows. Both inputs
    ascend.
    """
    at = np.searchsorted(query_rows, query)
    own = np.append(query_rows, -1)[at] == query
    return at[own], row_index[own]
