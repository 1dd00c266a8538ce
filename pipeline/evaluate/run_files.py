"""TREC run files of other systems; of the six fields, query, document and score are used, as in trec_eval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from darklode.pipeline.base.artifacts import FunnelStep, Output, Tables
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.retrieve.search import QUERY_BLOCK
from darklode.schemas.tables import TABLES

FUNNEL_STEP = "test_rankings.run_file"
N_FIELDS = 6
NUMBER_PATTERN = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
LINE_SCHEMA = pa.schema(
    [
        ("line", pa.int64()),
        ("query", pa.string()),
        ("text", pa.string()),
        ("score", pa.float64()),
        ("fault", pa.string()),
    ]
)

# A name is an id, or its form in exports: percent-encoded, with `tenant/` in front if there are several tenants.
QUERY_NAMES_SQL = """
    CREATE TEMP TABLE query_names AS
    SELECT name, count(*) AS owners, any_value(tenant) AS tenant, any_value(query_id) AS query_id FROM (
        SELECT query_id AS name, tenant, query_id FROM test_queries
        UNION SELECT tenant || '/' || query_id, tenant, query_id FROM test_queries
    ) GROUP BY name
"""

# Each line with its query and text, looked up by id as written, then percent-decoded, then with `tenant/` removed.
# `reason` says why a line is rejected, null if it is used. An unknown document keeps its name as its id.
RESOLVED_LINES_SQL = """
    CREATE TEMP TABLE resolved_lines AS
    WITH lines_with_query AS (
        SELECT l.*, coalesce(raw.tenant, decoded.tenant) AS tenant,
               coalesce(raw.query_id, decoded.query_id) AS query_id,
               coalesce(raw.owners, decoded.owners, 0) AS owners
        FROM run_lines l LEFT JOIN query_names raw ON raw.name = l.query
        LEFT JOIN query_names decoded ON decoded.name = url_decode(l.query)
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
            n_lines = self._read(connection)
            for statement in (QUERY_NAMES_SQL, RESOLVED_LINES_SQL):
                connection.execute(statement)
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

    def _read(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Create the table `run_lines` from the file's lines; returns their number."""
        connection.register("no_lines", LINE_SCHEMA.empty_table())
        connection.execute("CREATE TEMP TABLE run_lines AS SELECT * FROM no_lines")
        line = 0
        for texts in self._lines():
            connection.register("new_lines", _fields(texts, line + 1))
            connection.execute("INSERT INTO run_lines SELECT * FROM new_lines")
            line += len(texts)
        return line

    def _lines(self) -> Iterator[pa.Array]:
        try:
            reader = pcsv.open_csv(
                pa.input_stream(str(self._path), compression="detect"),
                pcsv.ReadOptions(column_names=["line"]),
                pcsv.ParseOptions(delimiter="\x1f", quote_char=False, ignore_empty_lines=False),
                pcsv.ConvertOptions(column_types={"line": pa.string()}, strings_can_be_null=False),
            )
            yield from (batch["line"] for batch in reader)
        except (OSError, pa.ArrowInvalid) as error:
            if "Empty CSV" not in str(error):
                raise InputError(f"the run file {self._path} cannot be read: {error}") from error

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


def _fields(lines: pa.Array, first: int) -> pa.Table:
    """Rows of `LINE_SCHEMA`, numbered from `first`; in an invalid line, `query` is the whole line."""
    parts = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(lines))
    is_complete = pc.equal(pc.list_value_length(parts), N_FIELDS)
    blank = pa.array(["", "0", "", "0", "", ""])
    six = pc.if_else(is_complete, parts, pa.array([blank.to_pylist()] * len(lines), pa.list_(pa.string())))
    query, text, score = (pc.list_element(six, field_index) for field_index in (0, 2, 4))
    numeric = pc.match_substring_regex(score, NUMBER_PATTERN)
    fault = pc.case_when(
        pc.make_struct(pc.invert(is_complete), pc.invert(numeric)),
        pa.scalar(f"not {N_FIELDS} fields"),
        pa.scalar("score is not a number"),
    )
    return pa.table(
        {
            "line": pa.array(range(first, first + len(lines)), pa.int64()),
            "query": pc.if_else(is_complete, query, lines),
            "text": text,
            "score": pc.if_else(numeric, score, None).cast(pa.float64()),
            "fault": fault,
        },
        schema=LINE_SCHEMA,
    )
