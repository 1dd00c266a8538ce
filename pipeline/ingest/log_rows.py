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

from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.personal_data import mask as masked
from darklode.pipeline.base.query_normalization import normal_form
from darklode.pipeline.base.types import Mask
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, blank_to_null, common_faults, drop_faulty, is_blank, mask
from darklode.pipeline.ingest.timestamps import UTC_MICROSECONDS, read_times
from darklode.schemas.mined_tables import IMPRESSIONS
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings

BATCH_ROWS = 1 << 15  # sorted rows fetched from DuckDB at once: bounds memory
# Hexadecimal digits (96 bits) of generated search and event ids: with a billion ids, a collision is very unlikely.
ID_DIGITS = 24
# Impressions before the sort: days in days and times in microseconds since 1970 (UTC), positions as in the log.
STAGED_SCHEMA = pa.schema(
    [
        ("tenant", pa.string()),
        ("event_id", pa.string()),
        ("search_id", pa.string()),
        ("session_id", pa.string()),
        ("user_id", pa.string()),
        ("day", pa.int32()),
        ("time", pa.int64()),
        ("query", pa.string()),
        ("normal_form", pa.string()),
        ("doc_id", pa.string()),
        ("position", pa.int32()),
        ("clicked", pa.bool_()),
        ("dwell_seconds", pa.float32()),
        ("variant", pa.string()),
    ]
)
# Sorted impressions with the missing ids added. A search without an id is identified by its session, query and time.
# Ordered by all columns, so that the order depends on nothing but the rows. chr(31), the ASCII unit separator, keeps
# hashed values apart. Changing a hashed value changes the ids, and so every table that refers to them.
SORTED_IMPRESSIONS_SQL = f"""
WITH with_query_ids AS (
    SELECT * REPLACE (position + $shift AS position), left(sha256(normal_form), 16) AS query_id FROM staged_rows
), with_search_ids AS (
    SELECT * REPLACE (coalesce(search_id,
        left(sha256(concat_ws(chr(31), coalesce(session_id, ''), query_id, time)), {ID_DIGITS})) AS search_id)
    FROM with_query_ids
)
SELECT * EXCLUDE (day, normal_form) REPLACE (coalesce(event_id,
    left(sha256(concat_ws(chr(31), tenant, search_id, doc_id, coalesce(position::VARCHAR, ''), time)), {ID_DIGITS})
) AS event_id)
FROM with_search_ids
ORDER BY day, tenant, time, search_id, position NULLS FIRST, doc_id, event_id,
    clicked, dwell_seconds NULLS FIRST, session_id NULLS FIRST, user_id NULLS FIRST, variant NULLS FIRST, query
"""


class LogStaging:
    """Rows of a partition in a DuckDB table, to be sorted once all files of the partition are read.

    Attributes:
        has_zero_position: whether a row added so far has position 0.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        connection.register("no_rows", STAGED_SCHEMA.empty_table())
        connection.execute("CREATE TABLE staged_rows AS SELECT * FROM no_rows")
        self.has_zero_position = False

    def add(self, rows: pa.Table) -> None:
        """Add rows of the schema STAGED_SCHEMA."""
        self.has_zero_position |= bool(pc.any(pc.equal(rows["position"], 0)).as_py())
        self._connection.register("new_rows", rows)
        self._connection.execute("INSERT INTO staged_rows SELECT * FROM new_rows")
        self._connection.unregister("new_rows")

    def is_shown(self, tenants: pa.Array, searches: pa.Array) -> Mask:
        """Mask of the searches that have a staged row without a click, which shows that impressions were logged.

        Args:
            tenants: tenant of each search.
            searches: search_id of each search.
        """
        columns = {
            "tenant": tenants,
            "search_id": searches,
            "number": pa.array(range(len(searches)), pa.int64()),
        }
        self._connection.register("searches", pa.table(columns))
        flags = self._connection.sql("""
            SELECT EXISTS (
                FROM staged_rows r WHERE r.tenant = s.tenant AND r.search_id = s.search_id AND NOT r.clicked
            ) AS is_shown
            FROM searches s ORDER BY number
        """).to_arrow_table()
        self._connection.unregister("searches")
        return mask(flags["is_shown"].combine_chunks())

    def pieces(self, shift: int) -> Iterator[tuple[date, pa.Table]]:
        """Yield days (UTC) with sorted impressions, in order; a day may come in several tables.

        Args:
            shift: offset added to positions so that they count from 1 (`LogRules.position_shift`).
        """
        rows_per_day = self._connection.sql(
            "SELECT day, count(*) FROM staged_rows GROUP BY day ORDER BY day"
        ).fetchall()
        reader = self._connection.sql(SORTED_IMPRESSIONS_SQL, params={"shift": shift}).to_arrow_reader(BATCH_ROWS)
        batch: pa.Table = reader.schema.empty_table()
        for day, n_rows in rows_per_day:
            n_remaining = n_rows
            while n_remaining:
                batch = batch if batch.num_rows else pa.Table.from_batches([next(reader)])
                day_rows = batch.slice(0, n_remaining)
                yield date(1970, 1, 1) + timedelta(days=day), _to_impressions(day_rows)
                n_remaining -= day_rows.num_rows
                batch = batch.slice(day_rows.num_rows)


@contextmanager
def open_staging() -> Iterator[LogStaging]:
    """Open an empty staging area; its files are deleted on exit."""
    with scratch() as connection:
        yield LogStaging(connection)


def _to_impressions(rows: pa.Table) -> pa.Table:
    """Convert sorted staged rows to the table `impressions`, with times as timestamps."""
    columns = {name: rows[name] for name in rows.schema.names if name != "time"}
    return IMPRESSIONS.rows(columns | {"timestamp": rows["time"].cast(UTC_MICROSECONDS)})


# Accepted spellings of `clicked`, after conversion to lower case; numbers are counts of clicks (COUNT_PATTERN).
TRUE_TEXTS, FALSE_TEXTS = ["true", "t", "yes", "y"], ["false", "f", "no", "n"]
# Numbers may have a decimal part of zeros (`3.0`), as pandas writes whole numbers in columns with gaps.
COUNT_PATTERN = r"^\+?[0-9]+(\.0*)?$"
INTEGER_PATTERN = r"^[+-]?[0-9]{1,9}(\.0*)?$"  # at most nine digits: fits into int32
DECIMAL_PATTERN = r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?$"


def normalize_spaces(texts: pa.Array) -> pa.Array:
    """Replace each run of white space by one space, and remove it at both ends."""
    return pc.binary_join(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts)), " ")


def mask_personal_data(texts: pa.Array) -> pa.Array:
    """Replace personal data, such as telephone numbers, by placeholders.

    Texts are first brought to Unicode NFC with single spaces, because numbers may contain unusual spaces.
    """
    return masked(normalize_spaces(pc.utf8_normalize(texts, "NFC")))


def spellings(queries: pa.Array, *, masking: bool) -> pa.Array:
    """Queries as typed, in Unicode NFC and with single spaces.

    Args:
        queries: texts; each distinct text is processed once, because queries of a log repeat.
        masking: whether personal data is masked.
    """
    coded = queries.dictionary_encode()
    distinct = coded.dictionary
    cleaned = mask_personal_data(distinct) if masking else normalize_spaces(pc.utf8_normalize(distinct, "NFC"))
    return cleaned.take(coded.indices)


def read_positions(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Parse whole numbers below a billion as int32; returns values (null if empty) and a mask of invalid texts."""
    return _parse_distinct(texts, _parse_positions)


def read_clicks(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Parse clicks from booleans or counts; returns values (false if empty) and a mask of invalid texts."""
    clicks, bad = _parse_distinct(texts, _parse_clicks)
    return pc.fill_null(clicks, False), bad


def read_seconds(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Parse non-negative seconds as float32; returns values (null if empty) and a mask of invalid texts."""
    return _parse_distinct(texts, _parse_seconds)


def _parse_distinct(texts: pa.Array, parse: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, Mask]:
    """Parse each distinct text once.

    Args:
        texts: texts of a column; null, white space and `NaN` count as empty.
        parse: function that returns a value per text, null for texts that it cannot parse.

    Returns:
        A value per text, null if there is none; and a mask of the texts that are not empty but have no value.
    """
    coded = texts.dictionary_encode()
    distinct_values = blank_to_null(coded.dictionary)
    cleaned = pc.if_else(pc.equal(pc.utf8_lower(distinct_values), "nan"), None, distinct_values)
    values = parse(cleaned)
    is_invalid = pc.and_(values.is_null(), cleaned.is_valid())
    return values.take(coded.indices), mask(is_invalid.take(coded.indices))


def _parse_positions(texts: pa.Array) -> pa.Array:
    """Whole numbers as int32; null for other texts."""
    digits = pc.replace_substring_regex(pc.utf8_ltrim(texts, "+"), r"\..*$", "")
    return pc.if_else(pc.match_substring_regex(texts, INTEGER_PATTERN), digits, None).cast(pa.int32())


def _parse_clicks(texts: pa.Array) -> pa.Array:
    """Booleans; a count is true if it is not zero. Null for other texts."""
    lower = pc.utf8_lower(texts)
    is_positive = pc.match_substring_regex(lower, r"^[^.]*[1-9]")
    from_counts = pc.if_else(pc.match_substring_regex(lower, COUNT_PATTERN), is_positive, None)
    is_true = pc.is_in(lower, pa.array(TRUE_TEXTS))
    is_false = pc.is_in(lower, pa.array(FALSE_TEXTS))
    return pc.coalesce(from_counts, pc.if_else(is_true, True, pc.if_else(is_false, False, None)))


def _parse_seconds(texts: pa.Array) -> pa.Array:
    """Non-negative decimal numbers as float32; null for other texts and for numbers that are too large."""
    numbers = pc.if_else(pc.match_substring_regex(texts, DECIMAL_PATTERN), texts, None).cast(pa.float32())
    return pc.if_else(pc.is_finite(numbers), numbers, None)


Faults = list[tuple[str, Mask]]
"""Reject reasons, each with a mask of the rows that it applies to."""


@dataclass(frozen=True)
class LogRules:
    """Rules that the rows of a partition must follow.

    Attributes:
        settings: the settings `logs`: time zone, first position, late days, masking.
        ingest: the settings `ingest`: tenant and maximum row length.
        date: the day in the names of the partition's files; None if they have none, so that any day is valid.
    """

    settings: LogSettings
    ingest: IngestSettings
    date: date | None

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last valid day (UTC) of an event, in days since 1970.

        An event may be `max_late_days` late, or a day early. In time zones other than UTC it may be at least a day
        late, because a day there can begin on the UTC day before.
        """
        day = ((self.date or date(1970, 1, 1)) - date(1970, 1, 1)).days
        zone_days = int(self.settings.time_zone != "UTC")
        return day - max(self.settings.max_late_days, zone_days), day + 1

    def position_shift(self, *, has_zero: bool) -> int:
        """Offset that makes positions count from 1.

        Args:
            has_zero: whether a row of the partition has position 0; used if `logs.first_position` is `auto`.
        """
        first_position = self.settings.first_position
        return int(has_zero) if first_position == "auto" else 1 - first_position


def select_usable(block: RowBlock, rules: LogRules, intake: Intake) -> pa.Table:
    """Parse a block of log rows and return the usable ones in the schema STAGED_SCHEMA.

    Positions stay as in the log, because the offset is known only after the last block of the partition.

    Args:
        block: rows with columns named by role (query, doc_id, …).
        rules: rules of the partition.
        intake: receives the other rows, each with the first fault that applies.
    """
    faults = common_faults(block, "", rules.ingest, "query")
    faults.append(("empty doc_id", is_blank(block.columns["doc_id"])))
    readable = drop_faulty(block, faults, intake).complete(rules.ingest)
    values, value_faults = _parse_values(readable, rules)
    is_usable = ~np.logical_or.reduce([fault_mask for _, fault_mask in value_faults])
    drop_faulty(readable, value_faults, intake)
    rows = pa.table([values[name] for name in STAGED_SCHEMA.names], schema=STAGED_SCHEMA)
    return rows if is_usable.all() else rows.filter(pa.array(is_usable))


def _parse_values(block: RowBlock, rules: LogRules) -> tuple[dict[str, pa.Array], Faults]:
    """Parse the columns of a block; returns the columns of STAGED_SCHEMA by name, and the faults of the values."""
    columns = {name: block.columns.get(name, block.nulls()) for name in (*STAGED_SCHEMA.names, "timestamp")}
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
        first_day, last_day = rules.days
        is_outside = pc.or_(pc.less(days, first_day), pc.greater(days, last_day))
        faults.append(("outside its partition's days", mask(is_outside)))
    id_roles = ("event_id", "search_id", "session_id", "user_id", "doc_id", "variant")
    ids = {role: blank_to_null(columns[role]) for role in id_roles}
    typed = {"day": days, "time": times.cast(pa.int64()), "position": positions, "clicked": clicks}
    query = spellings(columns["query"], masking=rules.settings.mask_personal_data)
    query_columns = {"tenant": columns["tenant"], "query": query, "normal_form": normal_form(query)}
    return ids | typed | query_columns | {"dwell_seconds": seconds}, faults
