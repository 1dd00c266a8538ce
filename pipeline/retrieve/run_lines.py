"""Lines of TREC run files as rows; of the six fields, query, document and score are used, as in trec_eval."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from darklode.pipeline.base.errors import InputError

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

# Names of the queries in the table `{queries}`. A name is an id, or its form in exports: percent-encoded, with
# `tenant/` in front if there are several tenants.
QUERY_NAMES_SQL = """
    CREATE TEMP TABLE query_names AS
    SELECT name, count(*) AS owners, any_value(tenant) AS tenant, any_value(query_id) AS query_id FROM (
        SELECT query_id AS name, tenant, query_id FROM {queries}
        UNION SELECT tenant || '/' || query_id, tenant, query_id FROM {queries}
    ) GROUP BY name
"""

# Lines with the query that they name; `owners` is the number of queries of that name, 0 for an unknown one.
LINES_WITH_QUERY_SQL = """
        SELECT l.*, coalesce(raw.tenant, decoded.tenant) AS tenant,
               coalesce(raw.query_id, decoded.query_id) AS query_id,
               coalesce(raw.owners, decoded.owners, 0) AS owners
        FROM run_lines l LEFT JOIN query_names raw ON raw.name = l.query
        LEFT JOIN query_names decoded ON decoded.name = url_decode(l.query)
"""


def read_run_lines(connection: duckdb.DuckDBPyConnection, path: Path, queries: str) -> int:
    """Create the tables `run_lines` (`LINE_SCHEMA`) and `query_names`; returns the number of lines.

    Args:
        connection: has the queries' table.
        path: the run file, plain or .gz.
        queries: name of the table of queries.

    Raises:
        InputError: the file cannot be read.
    """
    connection.register("no_lines", LINE_SCHEMA.empty_table())
    connection.execute("CREATE TEMP TABLE run_lines AS SELECT * FROM no_lines")
    line = 0
    for texts in _lines(path):
        connection.register("new_lines", _fields(texts, line + 1))
        connection.execute("INSERT INTO run_lines SELECT * FROM new_lines")
        line += len(texts)
    connection.execute(QUERY_NAMES_SQL.format(queries=queries))
    return line


def _lines(path: Path) -> Iterator[pa.Array]:
    try:
        reader = pcsv.open_csv(
            pa.input_stream(str(path), compression="detect"),
            pcsv.ReadOptions(column_names=["line"]),
            pcsv.ParseOptions(delimiter="\x1f", quote_char=False, ignore_empty_lines=False),
            pcsv.ConvertOptions(column_types={"line": pa.string()}, strings_can_be_null=False),
        )
        yield from (batch["line"] for batch in reader)
    except (OSError, pa.ArrowInvalid) as error:
        if "Empty CSV" not in str(error):
            raise InputError(f"the run file {path} cannot be read: {error}") from error


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
