"""The rows of a partition on their way into parts: in DuckDB, which keeps on disk what does not fit into memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts.tables import scratch
from pipeline.ingest.block import Mask, mask
from pipeline.ingest.times import UTC_MICROSECONDS
from schemas.mined_tables import IMPRESSIONS

PART_ROWS = 1 << 18
BATCH_ROWS = 1 << 15
ID_DIGITS = 24
STAGED = pa.schema(
    [
        ("tenant", pa.string()),
        ("event_id", pa.string()),
        ("search_id", pa.string()),
        ("session_id", pa.string()),
        ("day", pa.int32()),
        ("time", pa.int64()),
        ("query", pa.string()),
        ("doc_id", pa.string()),
        ("position", pa.int32()),
        ("clicked", pa.bool_()),
        ("dwell_seconds", pa.float32()),
    ]
)
# The last columns of the order leave equal rows only, so that it hangs on nothing but the rows.
ORDERED = f"""
WITH queried AS (
    SELECT * REPLACE (position + $shift AS position), left(sha256(query), 16) AS query_id FROM staged
), searched AS (
    SELECT * REPLACE (coalesce(search_id,
        left(sha256(concat_ws(chr(31), coalesce(session_id, ''), query_id, time)), {ID_DIGITS})) AS search_id)
    FROM queried
)
SELECT * EXCLUDE (day) REPLACE (coalesce(event_id,
    left(sha256(concat_ws(chr(31), tenant, search_id, doc_id, coalesce(position::VARCHAR, ''), time)), {ID_DIGITS})
) AS event_id)
FROM searched
ORDER BY day, tenant, time, search_id, position NULLS FIRST, doc_id, event_id,
    clicked, dwell_seconds NULLS FIRST, session_id NULLS FIRST, query
"""


class Staging:
    """Rows that wait until a partition is read to its end."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        connection.register("none", STAGED.empty_table())
        connection.execute("CREATE TABLE staged AS SELECT * FROM none")
        self.zero = False

    def add(self, rows: pa.Table) -> None:
        """Add rows of the schema STAGED."""
        self.zero |= bool(pc.any(pc.equal(rows["position"], 0)).as_py())
        self._connection.register("arriving", rows)
        self._connection.execute("INSERT INTO staged SELECT * FROM arriving")
        self._connection.unregister("arriving")

    def shown(self, tenants: pa.Array, searches: pa.Array) -> Mask:
        """Which of some searches have a staged row that is no click."""
        asked = {"tenant": tenants, "search_id": searches, "place": pa.array(range(len(searches)), pa.int64())}
        self._connection.register("asked", pa.table(asked))
        answer = self._connection.sql("""
            SELECT EXISTS (
                FROM staged s WHERE s.tenant = a.tenant AND s.search_id = a.search_id AND NOT s.clicked
            ) AS shown
            FROM asked a ORDER BY place
        """).to_arrow_table()
        self._connection.unregister("asked")
        return mask(answer["shown"].combine_chunks())

    def parts(self, shift: int) -> Iterator[tuple[date, pa.Table]]:
        """The rows as impressions, sorted and cut into parts of one day (UTC) each; `shift` is added to positions."""
        sizes = self._connection.sql("SELECT day, count(*) FROM staged GROUP BY day ORDER BY day").fetchall()
        reader = self._connection.sql(ORDERED, params={"shift": shift}).to_arrow_reader(BATCH_ROWS)
        waiting: pa.Table = reader.schema.empty_table()
        for day, rows in sizes:
            for begin in range(0, rows, PART_ROWS):
                wanted = min(PART_ROWS, rows - begin)
                while waiting.num_rows < wanted:
                    waiting = pa.concat_tables([waiting, pa.Table.from_batches([next(reader)])])
                yield date(1970, 1, 1) + timedelta(days=day), _impressions(waiting.slice(0, wanted))
                waiting = waiting.slice(wanted)


@contextmanager
def staging() -> Iterator[Staging]:
    """An empty staging area; what it keeps on disk is gone afterwards."""
    with scratch() as connection:
        yield Staging(connection)


def _impressions(rows: pa.Table) -> pa.Table:
    columns = {name: rows[name] for name in rows.schema.names if name != "time"}
    return IMPRESSIONS.rows(columns | {"timestamp": rows["time"].cast(UTC_MICROSECONDS)})
