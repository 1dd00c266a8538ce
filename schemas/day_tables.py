"""Tables of `mine-logs` about the days of the log: daily statistics and admission."""

import pyarrow as pa

from darklode.schemas.table import STRINGS, TENANT, Table, column

DATE = column("date", pa.date32(), "day, UTC")
COUNTS = pa.list_(pa.int64())

DAY_FIGURES = Table(
    "day_figures",
    ("tenant", "date"),
    "daily statistics of the log; repeats and bots are counted separately and excluded from all other columns",
    pa.schema(
        [
            TENANT,
            DATE,
            column("rows", pa.int64(), "rows of `impressions`"),
            column("repeats", pa.int64(), "rows that are repeats, or clicks merged into their impression"),
            column("bots", pa.int64(), "impressions in bot sessions"),
            column("impressions", pa.int64(), "documents shown for a search"),
            column("searches", pa.int64(), "searches"),
            column("clicks", pa.int64(), "clicked impressions"),
            column("sessions", pa.int64(), "sessions with an id"),
            column("queries", pa.int64(), "distinct queries"),
            column("documents", pa.int64(), "distinct documents shown"),
            column("without_position", pa.int64(), "impressions without a position"),
            column("without_session", pa.int64(), "searches without a session id"),
            column(
                "twins", pa.int64(), "searches with the query, second, results and clicks of another search of the day"
            ),
            column("top_query", pa.int64(), "searches for the most frequent query"),
            column("top_session", pa.int64(), "searches of the most active session"),
            column("shown_at", COUNTS, "impressions at positions 1, 2, … 19, and 20 or lower"),
            column("clicked_at", COUNTS, "clicks at the same positions"),
            column("searched_at", COUNTS, "searches in hours 0 to 23, UTC"),
        ]
    ),
)

DAY_MARKS = Table(
    "day_marks",
    ("tenant", "date", "kind", "mark"),
    "hash sample of a day's queries and documents, for the overlap with earlier days; every day samples the same ids",
    pa.schema(
        [
            TENANT,
            DATE,
            column("kind", pa.string(), "query, document, or pair: a document shown for one of the day's head queries"),
            column("mark", pa.int64(), "hash of the id"),
            column("query", pa.int64(), "pair: hash of the query's id", null=True),
            column("shown", pa.int64(), "searches of a query, or impressions of a document or pair"),
            column("clicks", pa.int64(), "clicks"),
        ]
    ),
)

DAY_MEASURES = Table(
    "day_measures",
    ("tenant", "date", "measure"),
    "measures of a day compared with earlier admitted days",
    pa.schema(
        [
            TENANT,
            DATE,
            column("measure", pa.string(), "name of the measure (docs/guides/mine.md)"),
            column("value", pa.float64(), "value of the day, on the scale of the measure"),
            column("size", pa.float64(), "sample size of the value"),
            column("expected", pa.float64(), "forecast from earlier days; null if there are too few", null=True),
            column(
                "distance",
                pa.float64(),
                "implausible deviation from the forecast in its standard deviations; null without a forecast",
                null=True,
            ),
            column("p_value", pa.float64(), "probability of such a deviation by chance; null without one", null=True),
        ]
    ),
)

LOG_DAYS = Table(
    "log_days",
    ("tenant", "date"),
    "days of the log and their admission: only admitted and accepted days are mined",
    pa.schema(
        [
            TENANT,
            DATE,
            column("state", pa.string(), "admitted, held, accepted, discarded, or missing (no file in the log)"),
            column("reasons", STRINGS, "what is unusual, most unusual first"),
            column(
                "distance",
                pa.float64(),
                "largest distance of its measures; null if there are too few days",
                null=True,
            ),
            column(
                "p_value",
                pa.float64(),
                "probability that an ordinary day is as unusual; null if there are too few days",
                null=True,
            ),
            column("rows", pa.int64(), "rows of `impressions`"),
            column("decided_at", pa.string(), "time of the decision to accept or discard it, UTC", null=True),
            column("note", pa.string(), "stated reason of the decision", null=True),
        ]
    ),
)

DAY_TABLES = (DAY_FIGURES, DAY_MARKS, DAY_MEASURES, LOG_DAYS)
