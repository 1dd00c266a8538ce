"""From a ranker's replies to each query's positive and hard negative."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.relevance.candidates import Candidates
from schemas.mining import RelevanceSettings

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]

# The same draw on every machine and whatever else is drawn: the smallest hash, which is random enough.
DRAWN = """
    SELECT query, arg_min(place, sha256(concat_ws(chr(0), $seed, $tenant, query_id, doc_id))) AS place
    FROM between_k_and_t GROUP BY query ORDER BY query
"""


@dataclass(frozen=True)
class Ranked:
    """Documents with a score, by query, best first; all of shape (n_documents,).

    Attributes:
        query: number of the query in the block.
        doc: number of the document.
        score: the ranker's, 0 to 1: its best chunk's.
        rank: from 1.
    """

    query: _Ints
    doc: _Ints
    score: _Floats
    rank: _Ints


def scores(replies: pa.Table) -> _Floats:
    """Each reply's probability, 1 or 0 by the label where there is none, not a number where there is neither."""
    known = pc.coalesce(replies["probability"].cast(pa.float64()), replies["relevant"].cast(pa.float64()))
    return np.asarray(pc.fill_null(known, float("nan")).to_numpy())


def ranked(candidates: Candidates, score: _Floats) -> Ranked:
    """Order documents by their best chunk's score, then fused retrieval score, then doc_id.

    A document without any readable reply has no rank.

    Args:
        candidates: the pairs judged; documents are numbered in the order of their ids.
        score: of each pair, see `scores`.
    """
    read = np.flatnonzero(~np.isnan(score))
    query, doc, fused, score = candidates.query[read], candidates.doc[read], candidates.fused[read], score[read]
    by_document = np.lexsort((-score, doc, query))
    query, doc, fused, score = query[by_document], doc[by_document], fused[by_document], score[by_document]
    best = np.flatnonzero((np.diff(query, prepend=-1) != 0) | (np.diff(doc, prepend=-1) != 0))
    order = best[np.lexsort((doc[best], -fused[best], -score[best], query[best]))]
    query = query[order]
    return Ranked(query, doc[order], score[order], np.arange(len(query)) - np.searchsorted(query, query) + 1)


def positives(found: Ranked) -> _Ints:
    """Places of the documents that rank first with a score above 0, one for a query at most."""
    return np.flatnonzero((found.rank == 1) & (found.score > 0))


def negatives(
    connection: duckdb.DuckDBPyConnection,
    found: Ranked,
    names: tuple[str, pa.Array, pa.Array],
    settings: RelevanceSettings,
    seed: int,
) -> tuple[_Ints, _Ints]:
    """One document for each query that has more than K, drawn from the ranks after K up to T.

    Args:
        connection: any.
        found: the ranking.
        names: tenant, query_id of each number, doc_id of each number.
        settings: K and T.
        seed: of the draw.

    Returns:
        Queries, ascending, and the places of their documents in the ranking.
    """
    places = np.flatnonzero((found.rank > settings.top_k) & (found.rank <= settings.top_t))
    tenant, query_ids, doc_ids = names
    rows = {
        "query": pa.array(found.query[places]),
        "place": pa.array(places),
        "query_id": query_ids.take(pa.array(found.query[places])),
        "doc_id": doc_ids.take(pa.array(found.doc[places])),
    }
    connection.register("between_k_and_t", pa.table(rows))
    drawn = connection.sql(DRAWN, params={"seed": str(seed), "tenant": tenant}).to_arrow_table()
    return drawn["query"].to_numpy(), drawn["place"].to_numpy()
