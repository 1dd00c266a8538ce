"""TREC run files of other systems; of the six fields, query, document and score are used, as in trec_eval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.retrieve.best_chunks import best_chunks
from darklode.pipeline.retrieve.run_lines import LINES_WITH_QUERY_SQL, read_run_lines
from darklode.pipeline.retrieve.search import QUERY_BLOCK
from darklode.schemas.tables import TABLES

FUNNEL_STEP = "test_rankings.run_file"
BEST_CHUNK_SCHEMA = pa.schema([(name, pa.string()) for name in ("tenant", "query_id", "doc_id", "chunk_id")])

TENANT_REMOVED_SQL = """
    CASE WHEN starts_with(url_decode(text), tenant || '/') THEN substr(url_decode(text), length(tenant) + 2) END
"""

# Each line with its query and the chunk or document of its id, looked up as written, then percent-decoded, then with
# `tenant/` removed. `reason` says why a line is rejected, null if it is used.
LINES_WITH_TEXT_SQL = f"""
    CREATE TEMP TABLE lines_with_text AS
    WITH lines_with_query AS (
        {LINES_WITH_QUERY_SQL}
    ), documents AS (
        SELECT DISTINCT tenant, doc_id FROM chunks
    ), lines AS (
        SELECT line, query, text, score, tenant, query_id,
               CASE WHEN fault IS NOT NULL THEN fault
                    WHEN owners = 0 THEN 'not a test query'
                    WHEN owners > 1 THEN 'query of several tenants: write tenant/query_id' END AS reason,
               url_decode(text) AS decoded, {TENANT_REMOVED_SQL} AS bare
        FROM lines_with_query
    )
    SELECT n.* EXCLUDE (decoded, bare), coalesce(c1.chunk_id, c2.chunk_id, c3.chunk_id) AS text_id,
           CASE WHEN text_id IS NULL THEN coalesce(d1.doc_id, d2.doc_id, d3.doc_id) END AS doc_id
    FROM lines n
    LEFT JOIN chunks c1 ON c1.tenant = n.tenant AND c1.chunk_id = n.text
    LEFT JOIN chunks c2 ON c2.tenant = n.tenant AND c2.chunk_id = n.decoded
    LEFT JOIN chunks c3 ON c3.tenant = n.tenant AND c3.chunk_id = n.bare
    LEFT JOIN documents d1 ON d1.tenant = n.tenant AND d1.doc_id = n.text
    LEFT JOIN documents d2 ON d2.tenant = n.tenant AND d2.doc_id = n.decoded
    LEFT JOIN documents d3 ON d3.tenant = n.tenant AND d3.doc_id = n.bare
"""

RANKED_DOCUMENTS_SQL = """
    SELECT l.tenant, l.query_id, any_value(q.text) AS query, list(DISTINCT l.doc_id ORDER BY l.doc_id) AS doc_ids
    FROM lines_with_text l JOIN test_queries q ON q.tenant = l.tenant AND q.query_id = l.query_id
    WHERE l.reason IS NULL AND l.doc_id IS NOT NULL GROUP BY ALL ORDER BY ALL
"""

# `best_chunks` has the chunk of each ranked document. An unknown text keeps its name as its id.
RESOLVED_LINES_SQL = """
    CREATE TEMP TABLE resolved_lines AS
    WITH with_chunk AS (
        SELECT l.* REPLACE (coalesce(l.text_id, b.chunk_id, l.text) AS text_id),
               coalesce(l.text_id, b.chunk_id) IS NOT NULL AS is_known
        FROM lines_with_text l LEFT JOIN best_chunks b
            ON b.tenant = l.tenant AND b.query_id = l.query_id AND b.doc_id = l.doc_id
    )
    SELECT * REPLACE (CASE WHEN reason IS NULL AND row_number() OVER (
        PARTITION BY tenant, query_id, text_id, reason ORDER BY line
    ) > 1 THEN 'document repeated' ELSE reason END AS reason) FROM with_chunk
"""

UNUSABLE_LINES_SQL = """
    SELECT reason, query_id AS id, tenant, line, concat_ws(' ', query, text, score) AS payload
    FROM resolved_lines WHERE reason IS NOT NULL ORDER BY line
"""

# The first text if all are unknown, otherwise no row.
UNKNOWN_TEXTS_SQL = """
    SELECT arg_min(text, line) FROM resolved_lines WHERE reason IS NULL HAVING NOT bool_or(is_known)
"""

# Like trec_eval: by descending score, ties by descending id.
RANKED_LISTS_SQL = """
    CREATE TEMP TABLE ranked_lists AS
    SELECT tenant, query_id, text_id, score, row_number() OVER (
        PARTITION BY tenant, query_id ORDER BY score DESC, text_id DESC
    ) AS rank, (dense_rank() OVER (PARTITION BY tenant ORDER BY query_id) - 1) // $block AS block
    FROM resolved_lines WHERE reason IS NULL QUALIFY rank <= $depth
"""

BLOCK_ROWS_SQL = """
    SELECT tenant, $system AS system, query_id, CAST(rank AS INTEGER) AS rank, text_id, CAST(score AS FLOAT) AS score
    FROM ranked_lists WHERE tenant = $tenant AND block = $block ORDER BY query_id, rank
"""


class RunFile:
    """A TREC run file, plain or .gz; its name without suffix is the system's name.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser()
        self.name = Path(self._path.name.removesuffix(".gz")).stem

    def lists(self, tables: Tables, output: Output, depth: int) -> Iterator[pa.Table]:
        """Rows of `test_rankings`, a block of queries of one tenant at a time; unusable rows become rejects.

        A document counts for its best chunk for the query by BM25. Unknown texts keep their rank and count as unjudged.

        Args:
            tables: must contain `test_queries`, and as `chunks` the searched texts.
            output: rejects and a funnel step.
            depth: maximum length of the rankings.

        Raises:
            InputError: the file cannot be read, has no test query, or no text of the run.
        """
        with tables.connect() as connection:
            n_lines = read_run_lines(connection, self._path, "test_queries")
            connection.execute(LINES_WITH_TEXT_SQL)
            connection.register("best_chunks", _best_chunks(connection, tables))
            connection.execute(RESOLVED_LINES_SQL)
            dropped = self._reject(connection, output)
            if n_lines == sum(dropped.values()):
                summary = ", ".join(f"{reason}: {count}" for reason, count in dropped.items()) or "it is empty"
                raise InputError(
                    f"{self._path} has no ranking of a test query ({summary}); see docs/guides/evaluate.md"
                )
            n_used = n_lines - sum(dropped.values())
            for (example,) in connection.sql(UNKNOWN_TEXTS_SQL).fetchall():
                raise InputError(
                    f"none of the {n_used:,} texts that {self._path} ranks for test queries is a chunk or document of "
                    f"the run, such as {example!r}; see docs/guides/evaluate.md"
                )
            output.count(FunnelStep(f"{FUNNEL_STEP}.{self.name}", "rows", n_lines, "rows", n_used, dropped))
            connection.execute(RANKED_LISTS_SQL, {"depth": depth, "block": QUERY_BLOCK})
            blocks = connection.sql("SELECT DISTINCT tenant, block FROM ranked_lists ORDER BY ALL").fetchall()
            for tenant, block in blocks:
                parameters = {"system": self.name, "tenant": tenant, "block": block}
                yield (
                    connection.sql(BLOCK_ROWS_SQL, params=parameters)
                    .to_arrow_table()
                    .cast(TABLES["test_rankings"].schema)
                )

    def _reject(self, connection: duckdb.DuckDBPyConnection, output: Output) -> dict[str, int]:
        bad: Counter[str] = Counter()
        for batch in connection.sql(UNUSABLE_LINES_SQL).to_arrow_reader(1 << 16):
            rows = pa.Table.from_batches([batch])
            bad.update(rows["reason"].to_pylist())
            file = pa.repeat(self._path.name, rows.num_rows)
            output.reject(
                FUNNEL_STEP, "test_rankings", dict(zip(rows.column_names, rows.columns, strict=True)) | {"file": file}
            )
        return dict(sorted(bad.items()))


def _best_chunks(connection: duckdb.DuckDBPyConnection, tables: Tables) -> pa.Table:
    """Rows of `BEST_CHUNK_SCHEMA`: the chunk by which each ranked document counts."""
    ranked = connection.sql(RANKED_DOCUMENTS_SQL).to_arrow_table()
    rows: list[pa.Table] = [BEST_CHUNK_SCHEMA.empty_table()]
    for tenant in pc.unique(ranked["tenant"]).to_pylist():
        queries = ranked.filter(pc.equal(ranked["tenant"], tenant))
        chunks = TenantChunks(tables, tenant)
        documents = queries["doc_ids"].to_pylist()
        best_rows = np.concatenate(best_chunks(queries["query"].to_pylist(), documents, chunks))
        columns = {
            "tenant": pa.repeat(tenant, len(best_rows)),
            "query_id": queries["query_id"].take(pc.list_parent_indices(queries["doc_ids"])),
            "doc_id": pc.list_flatten(queries["doc_ids"]),
            "chunk_id": chunks.chunk_ids.take(pa.array(best_rows)),
        }
        rows.append(pa.table(columns, schema=BEST_CHUNK_SCHEMA))
    return pa.concat_tables(rows)
