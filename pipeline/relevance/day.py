"""A day's new queries, ranked: tenant by tenant, in blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.judges.background import Background
from pipeline.judges.port import QUERY_BLOCK, Judge, check_replies
from pipeline.relevance.candidates import Candidates, nominate
from pipeline.relevance.opened import Opened, Tenants
from pipeline.relevance.ranking import Ranked, negatives, positives, ranked, scores
from schemas.mined_tables import RELEVANCE_EVIDENCE
from schemas.mining import RelevanceSettings

SEARCH_BLOCK = 1024

NO_DOCUMENTS, NO_CANDIDATE, NO_POSITIVE = "tenant has no documents", "no candidate", "no positive probability"

_QUERIES = """
    SELECT tenant, query_id, text AS query, substr(sha256(text), 1, 32) AS query_hash
    FROM that_day ORDER BY tenant, query_id
"""


@dataclass(frozen=True)
class DayRanker:
    """What every day is ranked with.

    Attributes:
        tenants: the tenants' documents and judges.
        background: where judges are waited for.
        connection: any.
        settings: K and T.
        seed: of the draws.
        tell: told how many of the day's queries are done, and the judge that works on the next.
    """

    tenants: Tenants
    background: Background
    connection: duckdb.DuckDBPyConnection
    settings: RelevanceSettings
    seed: int
    tell: Callable[[int, Judge], None]

    def evidence(self, rows: pa.Table, counts: Counter[str]) -> Iterator[pa.Table]:
        """Rows of `relevance_evidence`, by tenant and query_id, block by block.

        Args:
            rows: a day of `log_queries`.
            counts: takes the counts of queries, of positives, of what is lost, and of positives `without_negative`.
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
                    candidates = nominate(
                        opened.retrievers, block["query"].to_pylist(), opened.documents, self.settings.top_t
                    )
                    found = ranked(candidates, self._scores(opened, block, candidates, start))
                    yield self._chosen(opened, block, candidates, found, counts)
            first = end

    def _scores(self, opened: Opened, block: pa.Table, candidates: Candidates, before: int) -> NDArray[np.float64]:
        """Each pair's score by the judge, who sees `QUERY_BLOCK` queries at a time."""
        found = [np.empty(0)]
        for first in range(0, block.num_rows, QUERY_BLOCK):
            some = candidates.of(first, first + QUERY_BLOCK)
            tell = partial(self.tell, before + first, opened.judge)
            tell()
            if len(some.row):
                pairs = opened.pairs(block, some.query, some.row)
                replies = self.background.run(opened.judge.judge(pairs), tell)
                check_replies(opened.judge.judge_id, pairs, replies)
                found.append(scores(replies))
        return np.concatenate(found)

    def _chosen(
        self, opened: Opened, block: pa.Table, candidates: Candidates, found: Ranked, counts: Counter[str]
    ) -> pa.Table:
        """The positives of a block and their negatives."""
        best, query_ids = positives(found), block["query_id"].combine_chunks()
        names = opened.chunks.tenant, query_ids, opened.doc_ids
        asked, drawn = negatives(self.connection, found, names, self.settings, self.seed)
        place = np.full(block.num_rows, -1)
        place[asked] = drawn
        negative = place[found.query[best]]
        missing = negative < 0
        searched = len(np.unique(candidates.query))
        counts.update({"positives": len(best), "without_negative": int(missing.sum())})
        counts.update({NO_CANDIDATE: block.num_rows - searched, NO_POSITIVE: searched - len(best)})
        doc, score, negative = pa.array(found.doc), pa.array(found.score), pa.array(negative, mask=missing)
        return RELEVANCE_EVIDENCE.rows(
            {
                "tenant": pa.repeat(opened.chunks.tenant, len(best)),
                "query_id": query_ids.take(pa.array(found.query[best])),
                "positive_id": opened.doc_ids.take(doc.take(pa.array(best))),
                "positive_score": score.take(pa.array(best)),
                "negative_id": opened.doc_ids.take(doc.take(negative)),
                "negative_score": score.take(negative),
            }
        )
