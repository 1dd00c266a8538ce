"""Rows of a search log: parse values, reject unusable rows, and stage the others in DuckDB.

DuckDB sorts a partition, and spills to disk if it does not fit into memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts.tables import scratch
from darklode.pipeline.base.personal_data import mask as masked
from darklode.pipeline.base.query_normalization import normal_form
from darklode.pipeline.base.types import Mask
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, blank_to_null, common_faults, drop_faulty, is_blank, mask
from darklode.pipeline.ingest.timestamps import UTC_MICROSECONDS, read_times
from darklode.schemas.mined_tables import IMPRESSIONS
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings

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
        ("normal_form", pa.string()),
        ("doc_id", pa.string()),
        ("position", pa.int32()),
        ("clicked", pa.bool_()),
        ("dwell_seconds", pa.float32()),
        ("arm", pa.string()),
    ]
)
# Ordered by all columns, so that the order depends on nothing but the rows.
ORDERED = f"""
WITH queried AS (
    SELECT * REPLACE (position + $shift AS position), left(sha256(normal_form), 16) AS query_id FROM staged
), searched AS (
    SELECT * REPLACE (coalesce(search_id,
        left(sha256(concat_ws(chr(31), coalesce(session_id, ''), query_id, time)), {ID_DIGITS})) AS search_id)
    FROM queried
)
SELECT * EXCLUDE (day, normal_form) REPLACE (coalesce(event_id,
    left(sha256(concat_ws(chr(31), tenant, search_id, doc_id, coalesce(position::VARCHAR, ''), time)), {ID_DIGITS})
) AS event_id)
FROM searched
ORDER BY day, tenant, time, search_id, position NULLS FIRST, doc_id, event_id,
    clicked, dwell_seconds NULLS FIRST, session_id NULLS FIRST, arm NULLS FIRST, query
"""


class LogStaging:
    """Staged rows of a partition."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        connection.register("none", STAGED.empty_table())
        connection.execute("CREATE TABLE staged AS SELECT * FROM none")
        self.has_zero_position = False

    def add(self, rows: pa.Table) -> None:
        """Add rows of the schema STAGED."""
        self.has_zero_position |= bool(pc.any(pc.equal(rows["position"], 0)).as_py())
        self._connection.register("new_rows", rows)
        self._connection.execute("INSERT INTO staged SELECT * FROM new_rows")
        self._connection.unregister("new_rows")

    def is_shown(self, tenants: pa.Array, searches: pa.Array) -> Mask:
        """Mask of the searches that have a staged row without a click."""
        searches_table = {
            "tenant": tenants,
            "search_id": searches,
            "position": pa.array(range(len(searches)), pa.int64()),
        }
        self._connection.register("searches", pa.table(searches_table))
        answer = self._connection.sql("""
            SELECT EXISTS (
                FROM staged s WHERE s.tenant = a.tenant AND s.search_id = a.search_id AND NOT s.clicked
            ) AS shown
            FROM searches a ORDER BY position
        """).to_arrow_table()
        self._connection.unregister("searches")
        return mask(answer["shown"].combine_chunks())

    def pieces(self, shift: int) -> Iterator[tuple[date, pa.Table]]:
        """Yield sorted impressions in pieces of one day (UTC) each; `shift` is added to positions."""
        sizes = self._connection.sql("SELECT day, count(*) FROM staged GROUP BY day ORDER BY day").fetchall()
        reader = self._connection.sql(ORDERED, params={"shift": shift}).to_arrow_reader(BATCH_ROWS)
        batch: pa.Table = reader.schema.empty_table()
        for day, rows in sizes:
            remaining_rows = rows
            while remaining_rows:
                batch = batch if batch.num_rows else pa.Table.from_batches([next(reader)])
                own_rows = batch.slice(0, remaining_rows)
                yield date(1970, 1, 1) + timedelta(days=day), _impressions(own_rows)
                remaining_rows, batch = remaining_rows - own_rows.num_rows, batch.slice(own_rows.num_rows)


@contextmanager
def open_staging() -> Iterator[LogStaging]:
    """Open an empty staging area; its files are deleted on exit."""
    with scratch() as connection:
        yield LogStaging(connection)


def _impressions(rows: pa.Table) -> pa.Table:
    columns = {name: rows[name] for name in rows.schema.names if name != "time"}
    return IMPRESSIONS.rows(columns | {"timestamp": rows["time"].cast(UTC_MICROSECONDS)})


TRUE, FALSE = ["true", "t", "yes", "y"], ["false", "f", "no", "n"]
COUNT = r"^\+?[0-9]+(\.0*)?$"
WHOLE = r"^[+-]?[0-9]{1,9}(\.0*)?$"
DECIMAL = r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?$"


def normalize_spaces(texts: pa.Array) -> pa.Array:
    """Collapse white space to single spaces and trim."""
    return pc.binary_join(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts)), " ")


def mask_personal_data(texts: pa.Array) -> pa.Array:
    """Mask personal data. White space is normalized before, because numbers may contain unusual spaces."""
    return masked(normalize_spaces(pc.utf8_normalize(texts, "NFC")))


def spellings(queries: pa.Array, *, masking: bool) -> pa.Array:
    """Queries as typed, in NFC and with single spaces; personal data is masked if `masking`."""
    coded = queries.dictionary_encode()
    distinct = coded.dictionary
    cleaned = mask_personal_data(distinct) if masking else normalize_spaces(pc.utf8_normalize(distinct, "NFC"))
    return cleaned.take(coded.indices)


def read_positions(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Parse whole numbers below a billion as int32; returns values (null if empty) and a mask of invalid texts."""
    return _by_distinct(texts, _positions)


def read_clicks(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Parse clicks from booleans or counts; returns values (false if empty) and a mask of invalid texts."""
    clicks, bad = _by_distinct(texts, _clicks)
    return pc.fill_null(clicks, False), bad


def read_seconds(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Parse non-negative seconds as float32; returns values (null if empty) and a mask of invalid texts."""
    return _by_distinct(texts, _seconds)


def _by_distinct(texts: pa.Array, read: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, Mask]:
    """Parse each distinct text once; returns values and a mask of non-empty texts without a value."""
    coded = texts.dictionary_encode()
    distinct_values = blank_to_null(coded.dictionary)
    cleaned = pc.if_else(pc.equal(pc.utf8_lower(distinct_values), "nan"), None, distinct_values)
    values = read(cleaned)
    lost = pc.and_(values.is_null(), cleaned.is_valid())
    return values.take(coded.indices), mask(lost.take(coded.indices))


def _positions(texts: pa.Array) -> pa.Array:
    digits = pc.replace_substring_regex(pc.utf8_ltrim(texts, "+"), r"\..*$", "")
    return pc.if_else(pc.match_substring_regex(texts, WHOLE), digits, None).cast(pa.int32())


def _clicks(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    count = pc.if_else(pc.match_substring_regex(lower, COUNT), pc.match_substring_regex(lower, r"^[^.]*[1-9]"), None)
    yes, no = pc.is_in(lower, pa.array(TRUE)), pc.is_in(lower, pa.array(FALSE))
    return pc.coalesce(count, pc.if_else(yes, True, pc.if_else(no, False, None)))


def _seconds(texts: pa.Array) -> pa.Array:
    numbers = pc.if_else(pc.match_substring_regex(texts, DECIMAL), texts, None).cast(pa.float32())
    return pc.if_else(pc.is_finite(numbers), numbers, None)


Faults = list[tuple[str, Mask]]


@dataclass(frozen=True)
class LogRules:
    """Rules for the rows of a partition.

    Attributes:
        settings: the settings `logs`.
        ingest: the settings `ingest`.
        date: the partition's day; None: any day is valid.
    """

    settings: LogSettings
    ingest: IngestSettings
    date: date | None

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last valid day (UTC) of an event, in days since 1970.

        A day in another time zone begins on the UTC day before or ends on the day after.
        """
        day = ((self.date or date(1970, 1, 1)) - date(1970, 1, 1)).days
        zone_days = int(self.settings.time_zone != "UTC")
        return day - max(self.settings.max_late_days, zone_days), day + 1

    def position_shift(self, *, has_zero: bool) -> int:
        """Offset that makes positions count from 1; `has_zero`: a position is 0, which decides for `auto`."""
        first = self.settings.first_position
        return int(has_zero) if first == "auto" else 1 - first


def select_usable(block: RowBlock, rules: LogRules, intake: Intake) -> pa.Table:
    """The usable rows in the schema STAGED, positions as in the log; other rows are rejected."""
    faults = common_faults(block, "", rules.ingest, "query")
    faults.append(("empty doc_id", is_blank(block.columns["doc_id"])))
    readable = drop_faulty(block, faults, intake).complete(rules.ingest)
    values, bad = _values(readable, rules)
    is_usable = ~np.logical_or.reduce([hit for _, hit in bad])
    drop_faulty(readable, bad, intake)
    rows = pa.table([values[name] for name in STAGED.names], schema=STAGED)
    return rows if is_usable.all() else rows.filter(pa.array(is_usable))


def _values(block: RowBlock, rules: LogRules) -> tuple[dict[str, pa.Array], Faults]:
    roles = {name: name for name in (*STAGED.names, "timestamp")} | {"arm": "variant"}
    columns = {name: block.columns.get(role, block.nulls()) for name, role in roles.items()}
    times, time_faults = read_times(columns["timestamp"], rules.settings.time_zone)
    positions, bad_positions = read_positions(columns["position"])
    clicks, bad_clicks = read_clicks(columns["clicked"])
    seconds, bad_seconds = read_seconds(columns["dwell_seconds"])
    days = times.cast(pa.date32()).cast(pa.int32())
    min_position = 1 if rules.settings.first_position == 1 else 0
    faults = [
        *time_faults,
        ("missing timestamp", mask(times.is_null())),
        ("position is not a whole number", bad_positions),
        ("position is below the first position", mask(pc.less(positions, min_position))),
        ("clicked is neither a boolean nor a count", bad_clicks),
        ("dwell_seconds is not a non-negative number", bad_seconds),
    ]
    if rules.date is not None:
        first, last = rules.days
        faults.append(("outside its partition's days", mask(pc.or_(pc.less(days, first), pc.greater(days, last)))))
    ids = {role: blank_to_null(columns[role]) for role in ("event_id", "search_id", "session_id", "doc_id", "arm")}
    typed = {"day": days, "time": times.cast(pa.int64()), "position": positions, "clicked": clicks}
    query = spellings(columns["query"], masking=rules.settings.mask_personal_data)
    query_columns = {"tenant": columns["tenant"], "query": query, "normal_form": normal_form(query)}
    return ids | typed | query_columns | {"dwell_seconds": seconds}, faults
