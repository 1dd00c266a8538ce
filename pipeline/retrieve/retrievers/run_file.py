"""A TREC run file as a retriever: another system's rankings of the run's queries, by query id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.chunk_texts import tenants
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.base.types import Ints
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.external_hits import HitMapper, MapDocuments, Ranking
from darklode.pipeline.retrieve.retrievers.port import UNUSED_SCHEMA, Hits, Retriever
from darklode.pipeline.retrieve.run_lines import LINES_WITH_QUERY_SQL, read_run_lines

QUERY_COLUMNS = ["tenant", "query_id", "text"]
UNKNOWN_TEXT = "not a chunk or document of the tenant"
UNRANKED_QUERY = "query without a ranking in the file"

# Each line with its query. Lines without one belong to no tenant: the first tenant with chunks reports them.
LINES_SQL = f"""
    CREATE TEMP TABLE lines AS
    WITH lines_with_query AS ({LINES_WITH_QUERY_SQL}), with_reason AS (
        SELECT *, CASE WHEN fault IS NOT NULL THEN fault
                       WHEN owners = 0 THEN 'not a query of the run'
                       WHEN owners > 1 THEN 'query of several tenants: write tenant/query_id' END AS reason
        FROM lines_with_query
    )
    SELECT * REPLACE (CASE WHEN reason IS NULL AND row_number() OVER (
        PARTITION BY query_id, text, reason ORDER BY line
    ) > 1 THEN 'document repeated' ELSE reason END AS reason)
    FROM with_reason
    WHERE (owners = 1 AND tenant = $tenant) OR (owners <> 1 AND $is_first)
"""

# Like trec_eval: by descending score, ties by descending id.
RANKED_LINES_SQL = """
    SELECT q.text AS query, l.query_id, l.text, l.score, l.line
    FROM lines l JOIN queries q ON q.tenant = $tenant AND q.query_id = l.query_id
    WHERE reason IS NULL ORDER BY l.query_id, l.score DESC, l.text DESC
"""

UNUSED_LINES_SQL = """
    SELECT coalesce(query_id, query) AS id, line, reason, concat_ws(' ', query, text, score) AS payload
    FROM lines WHERE reason IS NOT NULL ORDER BY line
"""

UNRANKED_QUERIES_SQL = """
    SELECT query_id AS id, text AS payload FROM queries
    WHERE tenant = $tenant AND query_id NOT IN (SELECT query_id FROM lines WHERE reason IS NULL) ORDER BY query_id
"""


class RunFileRetriever(Retriever):
    """The rankings of a TREC run file, in trec_eval's order: by descending score, ties by descending id.

    Queries are looked up by text, because a retriever is given texts: of queries with the same text, the first one
    with a ranking counts for all.

    Args:
        name: name of the retriever.
        path: the run file, plain or .gz.
        corpus: the tenant's chunks, in a run with a table of queries.
        map_documents: see `HitMapper`.

    Raises:
        InputError: the file cannot be read or ranks no query, or the run has no queries with ids.
    """

    def __init__(self, name: str, path: Path, corpus: Corpus, map_documents: MapDocuments) -> None:
        self.name = name
        self._mapper, self._path = HitMapper(corpus, map_documents), path
        chunks = corpus.tenant_chunks
        if "queries" not in chunks.tables:
            raise InputError(f"the run file {path} ranks queries by id; the queries searched here have none")
        queries = chunks.tables.dataset("queries", QUERY_COLUMNS).to_table(QUERY_COLUMNS)
        with scratch() as connection:
            connection.register("queries", queries)
            n_lines = read_run_lines(connection, path, "queries")
            reports = min(
                {*tenants(chunks.tables)} & {*pc.unique(queries["tenant"]).to_pylist()}, default=chunks.tenant
            )
            connection.execute(LINES_SQL, {"tenant": chunks.tenant, "is_first": chunks.tenant == reports})
            (n_known,) = connection.sql("SELECT count(*) FROM run_lines WHERE fault IS NULL").fetchall()[0]
            self._rows = connection.sql(RANKED_LINES_SQL, params={"tenant": chunks.tenant}).to_arrow_table()
            self._unused = self._unusable(connection, chunks.tenant)
        if not n_known:
            raise InputError(
                f"{path} has no valid line among {n_lines}: a line has six fields, `query Q0 id rank score run`"
            )
        texts = self._rows["query"].to_pylist()
        ends = np.append(np.flatnonzero(np.diff(self._query_numbers())) + 1, len(texts)) if texts else np.array([], int)
        starts = np.append(0, ends[:-1]) if texts else ends
        self._slices = {
            texts[start]: (int(start), int(end)) for start, end in zip(starts[::-1], ends[::-1], strict=True)
        }

    @property
    def unused(self) -> pa.Table:
        """See `Retriever`: lines without a query, chunk or document of the run, and queries without a line."""
        return self._unused

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A query without a ranking has no hits."""
        rankings = []
        for query in queries:
            start, end = self._slices.get(query, (0, 0))
            lines = self._rows.slice(start, end - start)
            scores = lines["score"].to_numpy().astype(np.float32)
            rankings.append(Ranking(pa.concat_arrays([pa.array([], pa.string()), *lines["text"].chunks]), scores))
        return self._mapper.hits(queries, rankings, depth)

    def _query_numbers(self) -> Ints:
        return np.asarray(self._rows["query_id"].combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)

    def _unusable(self, connection: duckdb.DuckDBPyConnection, tenant: str) -> pa.Table:
        file = self._path.name
        faulty = connection.sql(UNUSED_LINES_SQL).to_arrow_table()
        texts = self._rows["text"].combine_chunks()
        unknown = self._rows.filter(pc.is_null(self._mapper.resolve(texts)[0])).sort_by("line")
        unranked = connection.sql(UNRANKED_QUERIES_SQL, params={"tenant": tenant}).to_arrow_table()
        return pa.concat_tables(
            [
                _unused(faulty, file, faulty["reason"]),
                _unused(unknown.rename_columns({"query_id": "id", "text": "payload"}), file, UNKNOWN_TEXT),
                _unused(unranked, file, UNRANKED_QUERY),
            ]
        )


def _unused(rows: pa.Table, file: str, reason: str | pa.ChunkedArray) -> pa.Table:
    n = rows.num_rows
    columns = {
        "id": rows["id"],
        "file": pa.repeat(file, n),
        "line": rows["line"] if "line" in rows.column_names else pa.nulls(n, pa.int64()),
        "reason": pa.repeat(reason, n) if isinstance(reason, str) else reason,
        "payload": rows["payload"],
    }
    return pa.table(columns).cast(UNUSED_SCHEMA)
