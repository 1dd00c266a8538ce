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

STEP = "test_rankings.run_file"
FIELDS = 6
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
GIVEN = pa.schema(
    [
        ("line", pa.int64()),
        ("query", pa.string()),
        ("text", pa.string()),
        ("score", pa.float64()),
        ("fault", pa.string()),
    ]
)

# A name is an id, or its form in exports: percent-encoded, with `tenant/` in front if there are several tenants.
NAMES = """
    CREATE TEMP TABLE names AS
    SELECT name, count(*) AS owners, any_value(tenant) AS tenant, any_value(query_id) AS query_id FROM (
        SELECT query_id AS name, tenant, query_id FROM test_queries
        UNION SELECT tenant || '/' || query_id, tenant, query_id FROM test_queries
    ) GROUP BY name
"""

LOOKED = """
    CREATE TEMP TABLE looked AS
    WITH named AS (
        SELECT g.*, coalesce(raw.tenant, told.tenant) AS tenant, coalesce(raw.query_id, told.query_id) AS query_id,
               coalesce(raw.owners, told.owners, 0) AS owners
        FROM given g LEFT JOIN names raw ON raw.name = g.query LEFT JOIN names told ON told.name = url_decode(g.query)
    ), found AS (
        SELECT n.line, n.query, n.text, n.score, n.tenant, n.query_id,
               coalesce(a.chunk_id, b.chunk_id, c.chunk_id, n.text) AS text_id,
               CASE WHEN fault IS NOT NULL THEN fault
                    WHEN owners = 0 THEN 'not a test query'
                    WHEN owners > 1 THEN 'query of several tenants: write tenant/query_id' END AS reason
        FROM named n
        LEFT JOIN chunks a ON a.tenant = n.tenant AND a.chunk_id = n.text
        LEFT JOIN chunks b ON b.tenant = n.tenant AND b.chunk_id = url_decode(n.text)
        LEFT JOIN chunks c ON c.tenant = n.tenant AND n.tenant || '/' || c.chunk_id = url_decode(n.text)
    )
    SELECT * REPLACE (CASE WHEN reason IS NULL AND row_number() OVER (
        PARTITION BY tenant, query_id, text_id, reason ORDER BY line
    ) > 1 THEN 'document repeated' ELSE reason END AS reason) FROM found
"""

BAD = """
    SELECT reason, query_id AS id, tenant, line, concat_ws(' ', query, text, score) AS payload
    FROM looked WHERE reason IS NOT NULL ORDER BY line
"""

# Like trec_eval: by descending score, ties by descending id.
LISTS = """
    CREATE TEMP TABLE lists AS
    SELECT tenant, query_id, text_id, score, row_number() OVER (
        PARTITION BY tenant, query_id ORDER BY score DESC, text_id DESC
    ) AS rank, (dense_rank() OVER (PARTITION BY tenant ORDER BY query_id) - 1) // $block AS block
    FROM looked WHERE reason IS NULL QUALIFY rank <= $depth
"""

BLOCK = """
    SELECT tenant, $system AS system, query_id, CAST(rank AS INTEGER) AS rank, text_id, CAST(score AS FLOAT) AS score
    FROM lists WHERE tenant = $tenant AND block = $block ORDER BY query_id, rank
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
            rows = self._read(connection)
            for statement in (NAMES, LOOKED):
                connection.execute(statement)
            dropped = self._reject(connection, output)
            if rows == sum(dropped.values()):
                summary = ", ".join(f"{reason}: {count}" for reason, count in dropped.items()) or "it is empty"
                raise InputError(
                    f"{self._path} has no ranking of a test query ({summary}); see docs/guides/evaluate.md"
                )
            output.count(FunnelStep(f"{STEP}.{self.name}", "rows", rows, "rows", rows - sum(dropped.values()), dropped))
            connection.execute(LISTS, {"depth": depth, "block": QUERY_BLOCK})
            blocks = connection.sql("SELECT DISTINCT tenant, block FROM lists ORDER BY ALL").fetchall()
            for tenant, block in blocks:
                parameters = {"system": self.name, "tenant": tenant, "block": block}
                yield connection.sql(BLOCK, params=parameters).to_arrow_table().cast(TABLES["test_rankings"].schema)

    def _read(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Create the table `given` from the file's lines; returns their number."""
        connection.register("none", GIVEN.empty_table())
        connection.execute("CREATE TEMP TABLE given AS SELECT * FROM none")
        line = 0
        for texts in self._lines():
            connection.register("arriving", _fields(texts, line + 1))
            connection.execute("INSERT INTO given SELECT * FROM arriving")
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
        for batch in connection.sql(BAD).to_arrow_reader(1 << 16):
            rows = pa.Table.from_batches([batch])
            bad.update(rows["reason"].to_pylist())
            file = pa.repeat(self._path.name, rows.num_rows)
            output.reject(
                STEP, "test_rankings", dict(zip(rows.column_names, rows.columns, strict=True)) | {"file": file}
            )
        return dict(sorted(bad.items()))


def _fields(lines: pa.Array, first: int) -> pa.Table:
    """Rows of `GIVEN`, numbered from `first`; in an invalid line, `query` is the whole line."""
    parts = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(lines))
    is_complete = pc.equal(pc.list_value_length(parts), FIELDS)
    blank = pa.array(["", "0", "", "0", "", ""])
    six = pc.if_else(is_complete, parts, pa.array([blank.to_pylist()] * len(lines), pa.list_(pa.string())))
    query, text, score = (pc.list_element(six, field_index) for field_index in (0, 2, 4))
    numeric = pc.match_substring_regex(score, NUMBER)
    fault = pc.case_when(
        pc.make_struct(pc.invert(is_complete), pc.invert(numeric)),
        pa.scalar(f"not {FIELDS} fields"),
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
        schema=GIVEN,
    )
