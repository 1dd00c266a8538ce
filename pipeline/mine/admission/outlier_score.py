"""Distance of a day's measures from earlier admitted days, in robust standard deviations."""

import duckdb
import pyarrow as pa

from darklode.pipeline.mine.admission.measures import KNOWN_DAYS, MEASURES

COMPARED_WEEKS = 8
"""A day is compared with the same weekday of this many weeks."""
MIN_SAME_WEEKDAYS = 3
"""Minimum number of earlier same weekdays for a comparison with these only."""
MIN_DAYS = 5
"""Minimum number of earlier days for a comparison with all weekdays."""
RECENT_DAYS = 3
"""Number of latest admitted days whose median deviation shifts the expectation: an accepted new level is expected from
then on.
"""
WEEKDAY_SPREAD = 0.25
"""Spread of search counts until weekdays can be told apart: a weekend may have a third of the searches."""
OVERDISPERSION = 2.0
"""Overdispersion: searches of a session are alike, so counts vary by this factor more than independent ones."""
MAD_TO_STD = 1.4826
"""Factor from median absolute deviation to standard deviation under normality."""

# `measures_today` and `measure_rules` are registered by `distances`.
DISTANCES_SQL = f"""
    WITH reference AS (
        SELECT tenant, measure, true AS weekday, count(*) AS n, median(value) AS center, mad(value) AS spread
        FROM measures_before WHERE (CAST($day AS DATE) - date) % 7 = 0 GROUP BY tenant, measure
        UNION ALL
        SELECT tenant, measure, false, count(*), median(value), mad(value)
        FROM measures_before WHERE date >= CAST($day AS DATE) - {KNOWN_DAYS} GROUP BY tenant, measure
    ), counted_references AS (
        SELECT *, max(n) FILTER (weekday) OVER (PARTITION BY tenant, measure) AS n_weeks,
               max(n) OVER (PARTITION BY tenant, measure) AS n_days
        FROM reference
    ), usable_references AS (
        SELECT * FROM counted_references
        WHERE (weekday OR coalesce(n_weeks, 0) < {MIN_SAME_WEEKDAYS})
        AND (n_days >= {MIN_DAYS} OR n_weeks >= {MIN_SAME_WEEKDAYS})
    ), recent AS (
        SELECT tenant, measure, median(value - expected) AS shift FROM (
            FROM measures_before WHERE expected IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY tenant, measure ORDER BY date DESC) <= {RECENT_DAYS}
        ) GROUP BY tenant, measure HAVING count(*) = {RECENT_DAYS}
    ), candidates AS (
        SELECT t.*, r.sides, u.center, unnest([0, coalesce(shift, 0)]) AS shift,
               greatest({MAD_TO_STD} * u.spread, CASE WHEN measure = 'searches' AND NOT weekday THEN {WEEKDAY_SPREAD}
                                                  ELSE r.spread END) AS spread,
               {OVERDISPERSION} * CASE r.scale WHEN 'ratio' THEN 1 / greatest(size * exp(u.center), 1)
                                          WHEN 'share' THEN 1 / (4 * size) ELSE 1 / (2 * size) END AS noise
        FROM measures_today t JOIN measure_rules r USING (measure) LEFT JOIN usable_references u USING (tenant, measure)
        LEFT JOIN recent USING (tenant, measure)
    ), deviations AS (
        SELECT *, value - center - shift AS deviation FROM candidates
    ), measure_distances AS (
        SELECT tenant, measure, value, size, center,
               round(CASE WHEN sides = 'low' AND deviation > 0 OR sides = 'high' AND deviation < 0 THEN 0
                          ELSE abs(deviation) END
                     / sqrt(spread * spread + noise), 3) AS distance
        FROM deviations
    )
    SELECT tenant, CAST($day AS DATE) AS date, measure, value, size,
           arg_min(center, {{'distance': distance, 'center': center}}) AS expected, min(distance) AS distance
    FROM measure_distances GROUP BY tenant, measure, value, size ORDER BY tenant, measure
"""


def distances(connection: duckdb.DuckDBPyConnection, measures: pa.Table, day: str) -> pa.Table:
    """Rows of `day_measures` for a day.

    A value is compared with the same weekday of earlier weeks and, until there are three of these, also with all days
    of the last four weeks; the smaller distance counts. If the last three days deviated from their expectation, the day
    may deviate as much. The deviation is divided by the root of the sum of two squares: of the standard deviation
    estimated by the median absolute deviation (at least the measure's minimum spread), and of the sampling error.

    Args:
        connection: a connection with `measures_before`: rows of `day_measures` of the admitted days of the last eight
            weeks.
        measures: measures of the day: tenant, measure, value, size.
        day: ISO date.
    """
    rules = {column: [getattr(measure, column) for measure in MEASURES] for column in ("scale", "sides", "spread")}
    connection.register("measure_rules", pa.table({"measure": [measure.name for measure in MEASURES]} | rules))
    connection.register("measures_today", measures)
    distance_rows: pa.Table = connection.sql(DISTANCES_SQL, params={"day": day}).to_arrow_table()
    return distance_rows
