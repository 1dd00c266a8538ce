"""Rows of a search log: each value gets its type, what cannot be used is turned away, and the rest waits in DuckDB.

There a partition lies on disk where it does not fit into memory, until it is read to its end and becomes parts.
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
from darklode.pipeline.ingest.rows import RowBlock, blank, blank_to_null, common_faults, drop_faulty, mask
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
# The last columns of the order leave equal rows only, so that it hangs on nothing but the rows.
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

    def is_shown(self, tenants: pa.Array, searches: pa.Array) -> Mask:
        """Which of some searches have a staged row that is no click."""
        searches_table = {"tenant": tenants, "search_id": searches, "place": pa.array(range(len(searches)), pa.int64())}
        self._connection.register("asked", pa.table(searches_table))
        answer = self._connection.sql("""
            SELECT EXISTS (
                FROM staged s WHERE s.tenant = a.tenant AND s.search_id = a.search_id AND NOT s.clicked
            ) AS shown
            FROM asked a ORDER BY place
        """).to_arrow_table()
        self._connection.unregister("asked")
        return mask(answer["shown"].combine_chunks())

    def pieces(self, shift: int) -> Iterator[tuple[date, pa.Table]]:
        """The rows as impressions, sorted, in pieces of one day (UTC) each; `shift` is added to positions."""
        sizes = self._connection.sql("SELECT day, count(*) FROM staged GROUP BY day ORDER BY day").fetchall()
        reader = self._connection.sql(ORDERED, params={"shift": shift}).to_arrow_reader(BATCH_ROWS)
        ahead: pa.Table = reader.schema.empty_table()
        for day, rows in sizes:
            remaining_rows = rows
            while remaining_rows:
                ahead = ahead if ahead.num_rows else pa.Table.from_batches([next(reader)])
                own_rows = ahead.slice(0, remaining_rows)
                yield date(1970, 1, 1) + timedelta(days=day), _impressions(own_rows)
                remaining_rows, ahead = remaining_rows - own_rows.num_rows, ahead.slice(own_rows.num_rows)


@contextmanager
def staging() -> Iterator[LogStaging]:
    """An empty staging area; what it keeps on disk is gone afterwards."""
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
    """Texts with single spaces between their words, and none around them."""
    return pc.binary_join(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts)), " ")


def without_personal_data(texts: pa.Array) -> pa.Array:
    """Texts with single spaces, since numbers may hold odd ones, and with personal data masked."""
    return masked(normalize_spaces(pc.utf8_normalize(texts, "NFC")))


def spellings(queries: pa.Array, *, masking: bool) -> pa.Array:
    """Queries as they were typed, in NFC and with single spaces; personal data is masked."""
    coded = queries.dictionary_encode()
    distinct = coded.dictionary
    sound = without_personal_data(distinct) if masking else normalize_spaces(pc.utf8_normalize(distinct, "NFC"))
    return sound.take(coded.indices)


def read_positions(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Whole numbers below a billion as int32, null where there is none; and where a text is no such number."""
    return _by_distinct(texts, _positions)


def read_clicks(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Whether it was clicked, from a truth value or a count, false where there is none; and where it is neither."""
    clicks, bad = _by_distinct(texts, _clicks)
    return pc.fill_null(clicks, False), bad


def read_seconds(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Seconds as float32, null where there are none; and where a text is no number from 0."""
    return _by_distinct(texts, _seconds)


def _by_distinct(texts: pa.Array, read: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, Mask]:
    """The values that `read` gives for the distinct texts, and where it gives none for a text that has one."""
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
    """How the rows of one partition are read.

    Attributes:
        settings: the settings `logs`.
        ingest: the settings `ingest`.
        date: the partition's day; None: events of any day are its own.
    """

    settings: LogSettings
    ingest: IngestSettings
    date: date | None

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last day (UTC) that an event may have, in days since 1970.

        A day by another clock than UTC's begins on the UTC day before, or ends on the one after.
        """
        day = ((self.date or date(1970, 1, 1)) - date(1970, 1, 1)).days
        ahead = self.settings.time_zone != "UTC"
        return day - max(self.settings.max_late_days, int(ahead)), day + 1

    def shift(self, *, zero: bool) -> int:
        """What is to be added to positions to count from 1; `zero` says whether any of them is 0."""
        first = self.settings.first_position
        return int(zero) if first == "auto" else 1 - first


def select_usable(block: RowBlock, rules: LogRules, intake: Intake) -> pa.Table:
    """The rows that can be used, with the schema STAGED; positions count from where the log begins to."""
    faults = common_faults(block, "", rules.ingest, "query")
    faults.append(("empty doc_id", blank(block.columns["doc_id"])))
    sound = drop_faulty(block, faults, intake).complete(rules.ingest)
    values, bad = _values(sound, rules)
    is_usable = ~np.logical_or.reduce([hit for _, hit in bad])
    drop_faulty(sound, bad, intake)
    rows = pa.table([values[name] for name in STAGED.names], schema=STAGED)
    return rows if is_usable.all() else rows.filter(pa.array(is_usable))


def _values(block: RowBlock, rules: LogRules) -> tuple[dict[str, pa.Array], Faults]:
    roles = {name: name for name in (*STAGED.names, "timestamp")} | {"arm": "variant"}
    columns = {name: block.columns.get(role, block.nulls()) for name, role in roles.items()}
    times, untimely = read_times(columns["timestamp"], rules.settings.time_zone)
    positions, unplaced = read_positions(columns["position"])
    clicks, unclear = read_clicks(columns["clicked"])
    seconds, unmeasured = read_seconds(columns["dwell_seconds"])
    days = times.cast(pa.date32()).cast(pa.int32())
    least = 1 if rules.settings.first_position == 1 else 0
    faults = [
        *untimely,
        ("missing timestamp", mask(times.is_null())),
        ("position is not a whole number", unplaced),
        ("position is below the first place", mask(pc.less(positions, least))),
        ("clicked is neither a truth value nor a count", unclear),
        ("dwell_seconds is not a number from 0", unmeasured),
    ]
    if rules.date is not None:
        first, last = rules.days
        faults.append(("outside its partition's days", mask(pc.or_(pc.less(days, first), pc.greater(days, last)))))
    ids = {role: blank_to_null(columns[role]) for role in ("event_id", "search_id", "session_id", "doc_id", "arm")}
    typed = {"day": days, "time": times.cast(pa.int64()), "position": positions, "clicked": clicks}
    query = spellings(columns["query"], masking=rules.settings.mask_personal_data)
    query_columns = {"tenant": columns["tenant"], "query": query, "normal_form": normal_form(query)}
    return ids | typed | query_columns | {"dwell_seconds": seconds}, faults
