"""The tables of `mine-logs` that say what each day of the log was like, and whether it may be learned from."""

import pyarrow as pa

from darklode.schemas.table import STRINGS, TENANT, Table, column

DATE = column("date", pa.date32(), "day, UTC")
COUNTS = pa.list_(pa.int64())

DAY_FIGURES = Table(
    "day_figures",
    ("tenant", "date"),
    "what a day's searches add up to; repeats and bots are counted apart, and everything else is without them",
    pa.schema(
        [
            TENANT,
            DATE,
            column("rows", pa.int64(), "rows of `impressions`"),
            column("repeats", pa.int64(), "of these: repeated, or a click joined to its impression"),
            column("bots", pa.int64(), "impressions of sessions that are bots"),
            column("impressions", pa.int64(), "documents shown for a search"),
            column("searches", pa.int64(), "searches"),
            column("clicks", pa.int64(), "impressions that were clicked"),
            column("sessions", pa.int64(), "sessions that have a name"),
            column("queries", pa.int64(), "distinct queries"),
            column("documents", pa.int64(), "distinct documents that were shown"),
            column("unplaced", pa.int64(), "impressions without a place"),
            column("nameless", pa.int64(), "searches without a session"),
            column("top_query", pa.int64(), "searches for the query that was searched most"),
            column("top_session", pa.int64(), "searches of the session that searched most"),
            column("shown_at", COUNTS, "impressions at places 1, 2, … 19, and 20 or lower"),
            column("clicked_at", COUNTS, "clicks at the same places"),
            column("searched_at", COUNTS, "searches in hours 0 to 23, UTC"),
        ]
    ),
)

DAY_MARKS = Table(
    "day_marks",
    ("tenant", "date", "kind", "mark"),
    "a sample of what a day held, to tell how much of it earlier days held as well: the same ids are drawn every day",
    pa.schema(
        [
            TENANT,
            DATE,
            column("kind", pa.string(), "query, document, or pair: a document shown for one of the day's head queries"),
            column("mark", pa.int64(), "hash of the id"),
            column("query", pa.int64(), "pair: hash of the query's id", null=True),
            column("shown", pa.int64(), "query: its searches; document and pair: impressions"),
            column("clicks", pa.int64(), "clicks"),
        ]
    ),
)

DAY_MEASURES = Table(
    "day_measures",
    ("tenant", "date", "measure"),
    "what is watched of a day, held against admitted days before it",
    pa.schema(
        [
            TENANT,
            DATE,
            column("measure", pa.string(), "what is watched (docs/guides/mine.md)"),
            column("value", pa.float64(), "the day's, on the measure's scale"),
            column("size", pa.float64(), "how much it was counted from"),
            column("expected", pa.float64(), "median of the days it is held against; null: too few", null=True),
            column("distance", pa.float64(), "robust z: how many spreads the two are apart; null: likewise", null=True),
        ]
    ),
)

LOG_DAYS = Table(
    "log_days",
    ("tenant", "date"),
    "the days of the log: which of them evidence, pairs and everything after were made from",
    pa.schema(
        [
            TENANT,
            DATE,
            column("state", pa.string(), "admitted, held, accepted, discarded, or missing: the log has no file of it"),
            column("reasons", STRINGS, "what is implausible about it, the worst first"),
            column("distance", pa.float64(), "the greatest of its measures; null: too few days to tell", null=True),
            column("rows", pa.int64(), "rows of `impressions`"),
            column("decided", pa.string(), "when somebody accepted or discarded it, UTC", null=True),
            column("because", pa.string(), "why, in their words", null=True),
        ]
    ),
)

DAY_TABLES = (DAY_FIGURES, DAY_MARKS, DAY_MEASURES, LOG_DAYS)
