"""The pairs to review, for display: loaded once; neighboring chunks are looked up on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.document_view import DOCUMENT_SQL, DocumentExcerpt
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.highlighting import BEGINS_FENCED_SQL
from darklode.pipeline.validate.review.journal import pair_name

TABLES_READ = ("review_sample", "near_misses", "queries", "chunks", "documents")
JUDGE_TABLE = "verdicts"
_REBUILT_MESSAGE = "the run was rebuilt since this review was started; restart the review"

# Near misses and sampled queries take turns, near misses first: a review that ends early has some of both.
_REVIEW_PAIRS_SQL = """
    WITH pairs_to_review AS (
        SELECT tenant, query_id, chunk_id, position, false AS shared, true AS near_miss FROM near_misses
        UNION ALL SELECT tenant, query_id, chunk_id, position, shared, false FROM review_sample
    ), sample AS (
        SELECT *, min(position) OVER query_window AS first, count(*) OVER query_window AS query_pairs,
               row_number() OVER (query_window ORDER BY position, chunk_id) AS query_pair
        FROM pairs_to_review WINDOW query_window AS (PARTITION BY near_miss, tenant, query_id)
    ), turns AS (
        SELECT *, dense_rank() OVER (PARTITION BY near_miss ORDER BY first, tenant, query_id) AS turn FROM sample
    )
    SELECT s.tenant, s.query_id, s.chunk_id, s.shared, s.near_miss,
           dense_rank() OVER (ORDER BY s.turn, s.near_miss DESC) AS query_number,
           s.query_pair, s.query_pairs,
           q.text AS query, c.doc_id, c.position, c.title, c.heading, c.text, d.url,
           {fenced} AS fenced,
           {judge}
    FROM turns s
    LEFT JOIN queries q ON q.tenant = s.tenant AND q.query_id = s.query_id
    LEFT JOIN chunks c ON c.tenant = s.tenant AND c.chunk_id = s.chunk_id
    LEFT JOIN documents d ON d.tenant = c.tenant AND d.doc_id = c.doc_id
    {verdicts}
    ORDER BY s.turn, s.near_miss DESC, s.query_pair
"""
_NO_VERDICT_COLUMNS = (
    "CAST(NULL AS BOOLEAN) AS relevant, CAST(NULL AS FLOAT) AS probability, CAST(NULL AS INTEGER) AS grade"
)
_VERDICT_COLUMNS = "v.relevant, v.probability, v.grade"
_VERDICTS_JOIN = """
    LEFT JOIN (
        SELECT tenant, query_id, chunk_id, any_value(relevant) AS relevant, any_value(probability) AS probability,
               any_value(grade) AS grade
        FROM verdicts SEMI JOIN pairs_to_review USING (tenant, query_id, chunk_id) GROUP BY ALL
    ) v ON v.tenant = s.tenant AND v.query_id = s.query_id AND v.chunk_id = s.chunk_id
"""
_NEIGHBORS_SQL = f"""
    SELECT c.position, c.heading, c.text, {BEGINS_FENCED_SQL} AS fenced
    FROM chunks c LEFT JOIN documents d ON d.tenant = c.tenant AND d.doc_id = c.doc_id
    WHERE c.tenant = $tenant AND c.doc_id = $doc_id AND c.position IN ($place - 1, $place + 1)
"""


@dataclass(frozen=True)
class ReviewPair:
    """One pair to review.

    Attributes:
        position: position of the chunk in its document, from 0.
        fenced: whether the chunk begins within fenced code.
        near_miss: whether it is a near miss, which is not part of the sample.
        query_number: which of the queries it is, from 1; a query with near misses and sampled pairs counts twice.
        query_pair: which of the query's `query_pairs` pairs it is, from 1.
        relevant, probability, grade: the judge's verdict; always None in a blind review.
    """

    tenant: str
    query_id: str
    chunk_id: str
    shared: bool
    near_miss: bool
    query_number: int
    query_pair: int
    query_pairs: int
    query: str
    doc_id: str
    position: int
    title: str | None
    heading: str | None
    text: str
    url: str | None
    fenced: bool
    relevant: bool | None
    probability: float | None
    grade: int | None

    @property
    def name(self) -> str:
        return pair_name(self.tenant, self.query_id, self.chunk_id)


@dataclass(frozen=True)
class Neighbour:
    """The chunk before or after the pair's chunk."""

    heading: str | None
    text: str
    fenced: bool


class ReviewPairs:
    """The pairs in order of review, by row; not affected by rebuilding the run.

    Attributes:
        rows: row of each pair by its name.
        shared: whether every reviewer labels it, shape (n_pairs,).
        near_misses: number of near misses.
        queries: number of queries.
        tenants: number of tenants.
    """

    def __init__(self, pairs: pa.Table, connection: duckdb.DuckDBPyConnection) -> None:
        self._pairs = pairs.combine_chunks()
        self._connection = connection
        self._busy = threading.Lock()  # request threads share the connection, which is not thread-safe
        ids = zip(*(pairs[name].to_pylist() for name in ("tenant", "query_id", "chunk_id")), strict=True)
        self.rows = {pair_name(*pair_ids): row for row, pair_ids in enumerate(ids)}
        self.shared: NDArray[np.bool_] = pairs["shared"].to_numpy().astype(bool)
        self.near_misses = int(pc.sum(pairs["near_miss"]).as_py() or 0)
        self.queries = int(pc.max(pairs["query_number"]).as_py() or 0)
        self.tenants = len(pc.unique(pairs["tenant"]))

    def __len__(self) -> int:
        return int(self._pairs.num_rows)

    def __getitem__(self, row: int) -> ReviewPair:
        return ReviewPair(**self._pairs.slice(row, 1).to_pylist()[0])

    def neighbors(self, row: int) -> tuple[Neighbour | None, Neighbour | None]:
        """Look up the chunks before and after a pair's chunk; None at the document's ends.

        Raises:
            ArtifactError: the run was rebuilt.
        """
        pair = self[row]
        neighbor_rows = self._query_rows(_NEIGHBORS_SQL, tenant=pair.tenant, doc_id=pair.doc_id, place=pair.position)
        chunk_by_position = {
            neighbor["position"]: Neighbour(neighbor["heading"], neighbor["text"], neighbor["fenced"])
            for neighbor in neighbor_rows
        }
        return chunk_by_position.get(pair.position - 1), chunk_by_position.get(pair.position + 1)

    def document(self, row: int) -> DocumentExcerpt:
        """Look up a pair's document, with its chunk.

        Raises:
            ArtifactError: the run was rebuilt.
        """
        pair = self[row]
        document_rows = self._query_rows(DOCUMENT_SQL, tenant=pair.tenant, doc_id=pair.doc_id, chunk_id=pair.chunk_id)
        if not document_rows:
            raise ArtifactError(_REBUILT_MESSAGE)
        return DocumentExcerpt.from_row(document_rows[0])

    def _query_rows(self, query: str, **parameters: object) -> list[dict[str, Any]]:
        try:
            with self._busy:
                rows: list[dict[str, Any]] = self._connection.sql(query, params=parameters).to_arrow_table().to_pylist()
        except (duckdb.Error, OSError) as error:
            raise ArtifactError(_REBUILT_MESSAGE) from error
        return rows


@contextmanager
def open_review_pairs(tables: Tables, *, show_judge: bool) -> Iterator[ReviewPairs]:
    """Open the near misses and the sample's pairs; a context manager.

    Args:
        tables: must contain `TABLES_READ`, and `verdicts` if the judge is shown.
        show_judge: whether to load the judge's verdicts.

    Raises:
        ArtifactError: the sample is empty, or has a query or chunk that the run no longer has.
    """
    judge, verdicts = (_VERDICT_COLUMNS, _VERDICTS_JOIN) if show_judge else (_NO_VERDICT_COLUMNS, "")
    with tables.connect() as connection:
        pairs = connection.sql(
            _REVIEW_PAIRS_SQL.format(judge=judge, verdicts=verdicts, fenced=BEGINS_FENCED_SQL)
        ).to_arrow_table()
        _check(pairs, tables.url)
        yield ReviewPairs(pairs, connection)


def _check(pairs: pa.Table, url: str) -> None:
    if not pairs.num_rows:
        raise ArtifactError(f"the sample of {url} is empty; raise review.query_share or review.max_pairs")
    for name, text in (("query_id", "query"), ("chunk_id", "text")):
        unknown_ids = pairs[name].filter(pc.is_null(pairs[text]))
        if len(unknown_ids):
            raise ArtifactError(
                f"the sample of {url} has {name} {unknown_ids[0].as_py()!r}, which the run no longer has"
            )
