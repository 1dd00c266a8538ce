"""TREC run files of other systems; of the six fields, query, document and score are used, as in trec_eval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Tables
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.retrieve.run_lines import LINES_WITH_QUERY_SQL, read_run_lines
from darklode.pipeline.retrieve.search import QUERY_BLOCK
from darklode.schemas.tables import TABLES

FUNNEL_STEP = "test_rankings.run_file"
# Each line with its query and text, looked up by id as written, then percent-decoded, then with `tenant/` removed.
# `reason` says why a line is rejected, null if it is used. An unknown document keeps its name as its id.
RESOLVED_LINES_SQL = f"""
    CREATE TEMP TABLE resolved_lines AS
    WITH lines_with_query AS (
        {LINES_WITH_QUERY_SQL}
    ), lines_with_text AS (
        SELECT n.line, n.query, n.text, n.score, n.tenant, n.query_id,
               coalesce(by_id.chunk_id, by_decoded.chunk_id, by_tenant.chunk_id, n.text) AS text_id,
               CASE WHEN fault IS NOT NULL THEN fault
                    WHEN owners = 0 THEN 'not a test query'
                    WHEN owners > 1 THEN 'query of several tenants: write tenant/query_id' END AS reason
        FROM lines_with_query n
        LEFT JOIN chunks by_id ON by_id.tenant = n.tenant AND by_id.chunk_id = n.text
        LEFT JOIN chunks by_decoded ON by_decoded.tenant = n.tenant AND by_decoded.chunk_id = url_decode(n.text)
        LEFT JOIN chunks by_tenant
            ON by_tenant.tenant = n.tenant AND n.tenant || '/' || by_tenant.chunk_id = url_decode(n.text)
    )
    SELECT * REPLACE (CASE WHEN reason IS NULL AND row_number() OVER (
        PARTITION BY tenant, query_id, text_id, reason ORDER BY line
    ) > 1 THEN 'document repeated' ELSE reason END AS reason) FROM lines_with_text
"""

UNUSABLE_LINES_SQL = """
    SELECT reason, query_id AS id, tenant, line, concat_ws(' ', query, text, score) AS payload
    FROM resolved_lines WHERE reason IS NOT NULL ORDER BY line
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

        Unknown documents keep their rank and count as unjudged.

        Args:
            tables: must contain `test_queries`, and as `chunks` the searched texts.
            output: rejects and a funnel step.
            depth: maximum length of the rankings.

        Raises:
            InputError: the file cannot be read, or has no test query.
        """
        with tables.connect() as connection:
            n_lines = read_run_lines(connection, self._path, "test_queries")
            connection.execute(RESOLVED_LINES_SQL)
            dropped = self._reject(connection, output)
            if n_lines == sum(dropped.values()):
                summary = ", ".join(f"{reason}: {count}" for reason, count in dropped.items()) or "it is empty"
                raise InputError(
                    f"{self._path} has no ranking of a test query ({summary}); see docs/guides/evaluate.md"
                )
            n_used = n_lines - sum(dropped.values())
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
