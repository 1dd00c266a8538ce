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

from darklode.pipeline.base.artifacts import FunnelStep, Output, Part, Stage, Tables, key_of
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.types import Doubles, Ints
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
"""Queries whose candidates are found together: bounds the memory of hits and candidates."""

NO_DOCUMENTS, NO_CANDIDATE, NO_POSITIVE = "tenant has no documents", "no candidate", "no positive probability"

_QUERIES_OF_DAY_SQL = """
    SELECT tenant, query_id, normal_form AS query, substr(sha256(normal_form), 1, 32) AS query_hash
    FROM queries_of_day ORDER BY tenant, query_id
"""


RELEVANCE = Stage("relevance", 4, ("log_queries",), ("relevance_evidence",), consults=("chunks",))
"""`chunks` is consulted but is not an input: `Ranker.version` already identifies the frozen state of the chunks."""


def relevance(tables: Tables, output: Output, settings: RelevanceSettings, *, ranker: Ranker, seed: int) -> None:
    """Write each query's best document, and the documents ranked K + 1 to T in random order as its negatives.

    Each retriever returns its top T documents by their best chunks. The judge scores these chunks, and a document has
    the score of its best chunk (`scores`); ties are broken by fused retrieval score, then doc_id. A document without a
    readable reply is not ranked; a query without a score above 0 has no row. The ranker `none` writes nothing.

    One unit per day of `log_queries`; a day is recomputed if its queries or `Ranker.version` change. Tenants stay open
    across days up to `OPEN_CHUNKS`; otherwise memory grows with a day's queries.

    Args:
        tables: tables that contain `log_queries`, in parts of one day each, and `chunks`.
        output: receives `relevance_evidence`, by day, tenant and query_id, and a fact that counts positives without a
            negative.
        settings: the ranker, K (`top_k`) and T (`top_t`).
        ranker: its retrievers find candidates, its judge scores them.
        seed: seed of the random order of the negatives.

    Raises:
        ValueError: replies break the judge's contract (`check_replies`).

    Source: ScalingNote, 4.1.
    """
    if settings.ranker == "none":
        return
    n_queries = tables.rows("log_queries")
    session = JudgingSession(output, n_queries, progress_count="queries")
    with OpenTenants(tables, ranker) as tenants, session, tables.connect() as connection:
        day_ranker = DayRanker(tenants, session, connection, settings, seed)
        for day, parts in tables.by_day("log_queries").items():
            day_fingerprint = key_of(sorted(part.sha256 for part in parts), ranker.version)
            session.unit(day, day_fingerprint, partial(_rank_day, tables, output, day_ranker, parts))
        _record_counts(output, session.counts, tenants.judges)


def _rank_day(tables: Tables, output: Output, day_ranker: DayRanker, parts: Sequence[Part]) -> Mapping[str, int]:
    """Rank the queries of a day and write their evidence; returns the counts of `DayRanker.evidence`."""
    counts = Counter[str]()
    queries = pa.concat_tables(tables.part(part) for part in parts)
    _write_evidence(output, day_ranker.evidence(queries, counts))
    return counts


def _write_evidence(output: Output, blocks: Iterable[pa.Table]) -> None:
    """Write blocks of evidence, collected into parts of at least `PART_ROWS` rows."""
    unwritten_rows = RELEVANCE_EVIDENCE.empty()
    for block in blocks:
        unwritten_rows = pa.concat_tables([unwritten_rows, block])
        if unwritten_rows.num_rows >= PART_ROWS:
            output.write(RELEVANCE_EVIDENCE.name, unwritten_rows)
            unwritten_rows = RELEVANCE_EVIDENCE.empty()
    output.write(RELEVANCE_EVIDENCE.name, unwritten_rows)


def _record_counts(output: Output, counts: Counter[str], judges: Iterable[Judge]) -> None:
    """Record the funnel step and the facts of the stage."""
    lost = {reason: counts[reason] for reason in (NO_DOCUMENTS, NO_CANDIDATE, NO_POSITIVE) if counts[reason]}
    output.count(FunnelStep("relevance", "queries", counts["queries"], "positives", counts["positives"], lost))
    output.facts |= {"without_negative": counts["without_negative"], **judge_facts(judges)}


@dataclass(frozen=True)
class DayRanker:
    """Ranks the queries of a day.

    Attributes:
        tenants: opens a tenant's documents, retrievers and judge.
        session: runs the judges, and reports their progress.
        connection: any DuckDB connection; queries and negatives are sorted in it.
        settings: K (`top_k`) and T (`top_t`).
        seed: seed of the random order of the negatives.
    """

    tenants: OpenTenants
    session: JudgingSession
    connection: duckdb.DuckDBPyConnection
    settings: RelevanceSettings
    seed: int

    def evidence(self, rows: pa.Table, counts: Counter[str]) -> Iterator[pa.Table]:
        """Rank a day's queries.

        Args:
            rows: the rows of `log_queries` of a day.
            counts: is updated with the numbers of queries, positives, lost queries by reason, and positives
                `without_negative`.

        Yields:
            Rows of `relevance_evidence` of a block of queries, by tenant and query_id.
        """
        self.connection.register("queries_of_day", rows)
        queries = self.connection.sql(_QUERIES_OF_DAY_SQL).to_arrow_table().combine_chunks()
        counts["queries"] += queries.num_rows
        first = 0  # the queries are sorted by tenant, so each tenant's queries are rows `first` to `end` - 1
        for tenant_count in pc.value_counts(queries["tenant"]).to_pylist():
            end = first + tenant_count["counts"]
            opened = self.tenants.get(tenant_count["values"])
            if opened is None:
                counts[NO_DOCUMENTS] += tenant_count["counts"]
            else:
                for start in range(first, end, SEARCH_BLOCK):
                    block = queries.slice(start, min(SEARCH_BLOCK, end - start))
                    candidates = top_candidates(
                        opened.retrievers, block["query"].to_pylist(), opened.documents, self.settings.top_t
                    )
                    ranking = rank_candidates(candidates, self._score_candidates(opened, block, candidates, start))
                    yield self._choose_pairs(opened, block, candidates, ranking, counts)
            first = end

    def _score_candidates(
        self, opened: OpenTenant, block: pa.Table, candidates: Candidates, n_queries_before: int
    ) -> Doubles:
        """The score of each candidate, shape (n_pairs,); the judge gets `QUERY_BLOCK` queries at a time.

        `n_queries_before`, the number of the day's queries before the block, is needed for the progress report only.
        """
        score_blocks = [np.empty(0)]  # a block without candidates has no scores
        for first in range(0, block.num_rows, QUERY_BLOCK):
            judged_candidates = candidates.slice_queries(first, first + QUERY_BLOCK)
            progress = n_queries_before + first
            self.session.report(opened.judge, progress)
            if len(judged_candidates.row):
                pairs = opened.pairs(block, judged_candidates.query, judged_candidates.row)
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
        """Rows of `relevance_evidence` of a block: one for each query with a positive."""
        positive_rows = positives(ranking)
        positive_queries = ranking.query[positive_rows]
        query_ids = block["query_id"].combine_chunks()
        names = opened.chunks.tenant, query_ids, opened.doc_ids
        negative_queries, negative_rows = negatives(self.connection, ranking, names, self.settings, self.seed)
        positive_index, negative_rows = _rows_of_queries(positive_queries, negative_queries, negative_rows)
        n_negatives = np.bincount(positive_index, minlength=len(positive_rows))
        n_with_candidates = len(np.unique(candidates.query))
        counts.update({"positives": len(positive_rows), "without_negative": int((n_negatives == 0).sum())})
        counts[NO_CANDIDATE] += block.num_rows - n_with_candidates
        counts[NO_POSITIVE] += n_with_candidates - len(positive_rows)
        doc, score = pa.array(ranking.doc), pa.array(ranking.score)
        offsets = pa.array(np.concatenate([[0], n_negatives.cumsum()]), pa.int32())
        negative_ids = opened.doc_ids.take(doc.take(negative_rows))
        negative_scores = score.take(negative_rows).cast(pa.float32())
        return RELEVANCE_EVIDENCE.rows(
            {
                "tenant": pa.repeat(opened.chunks.tenant, len(positive_rows)),
                "query_id": query_ids.take(pa.array(positive_queries)),
                "positive_id": opened.doc_ids.take(doc.take(pa.array(positive_rows))),
                "positive_score": score.take(pa.array(positive_rows)),
                "negative_ids": pa.ListArray.from_arrays(offsets, negative_ids),
                "negative_scores": pa.ListArray.from_arrays(offsets, negative_scores),
            }
        )


def _rows_of_queries(selected_queries: Ints, query: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Restrict rows to those of selected queries.

    Args:
        selected_queries: query numbers, ascending.
        query: query number of each row, ascending, shape (n_rows,).
        rows: the rows, shape (n_rows,).

    Returns:
        For each remaining row the index of its query in `selected_queries`, and the row.
    """
    index = np.searchsorted(selected_queries, query)
    # The appended -1 equals no query: it is what a query behind the last selected one is compared with.
    is_selected = np.append(selected_queries, -1)[index] == query
    return index[is_selected], rows[is_selected]
