"""Distance of a day's measures from earlier admitted days, in robust standard deviations."""

import duckdb
import pyarrow as pa

from darklode.pipeline.mine.admission.measures import DAYS, MEASURES

WEEKS = 8
"""A day is compared with the same weekday of this many weeks."""
LEAST_WEEKS = 3
"""Minimum number of earlier same weekdays for a comparison with these only."""
LEAST_DAYS = 5
"""Minimum number of earlier days for a comparison with all weekdays."""
RECENT = 3
"""Number of latest admitted days whose median deviation shifts the expectation: an accepted new level is expected from
then on.
"""
UNEVEN = 0.25
"""Spread of search counts until weekdays can be told apart: a weekend may have a third of the searches."""
CLUSTERED = 2.0
"""Overdispersion: searches of a session are alike, so counts vary by this factor more than independent ones."""
NORMAL = 1.4826
"""Factor from median absolute deviation to standard deviation under normality."""

DISTANCES = f"""
    WITH reference AS (
        SELECT tenant, measure, true AS weekday, count(*) AS n, median(value) AS middle, mad(value) AS spread
        FROM measures_before WHERE (CAST($day AS DATE) - date) % 7 = 0 GROUP BY tenant, measure
        UNION ALL
        SELECT tenant, measure, false, count(*), median(value), mad(value)
        FROM measures_before WHERE date >= CAST($day AS DATE) - {DAYS} GROUP BY tenant, measure
    ), counted AS (
        SELECT *, max(n) FILTER (weekday) OVER (PARTITION BY tenant, measure) AS weeks,
               max(n) OVER (PARTITION BY tenant, measure) AS most
        FROM reference
    ), usable AS (
        SELECT * FROM counted
        WHERE (weekday OR coalesce(weeks, 0) < {LEAST_WEEKS}) AND (most >= {LEAST_DAYS} OR weeks >= {LEAST_WEEKS})
    ), recent AS (
        SELECT tenant, measure, median(value - expected) AS shift FROM (
            FROM measures_before WHERE expected IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY tenant, measure ORDER BY date DESC) <= {RECENT}
        ) GROUP BY tenant, measure HAVING count(*) = {RECENT}
    ), candidates AS (
        SELECT t.*, w.sides, u.middle, unnest([0, coalesce(shift, 0)]) AS shift,
               greatest({NORMAL} * u.spread, CASE WHEN measure = 'searches' AND NOT weekday THEN {UNEVEN}
                                                  ELSE w.spread END) AS spread,
               {CLUSTERED} * CASE w.scale WHEN 'ratio' THEN 1 / greatest(size * exp(u.middle), 1)
                                          WHEN 'share' THEN 1 / (4 * size) ELSE 1 / (2 * size) END AS noise
        FROM today t JOIN watched w USING (measure) LEFT JOIN usable u USING (tenant, measure)
        LEFT JOIN recent USING (tenant, measure)
    ), apart AS (
        SELECT *, value - middle - shift AS off FROM candidates
    ), distances AS (
        SELECT tenant, measure, value, size, middle,
               round(CASE WHEN sides = 'low' AND off > 0 OR sides = 'high' AND off < 0 THEN 0 ELSE abs(off) END
                     / sqrt(spread * spread + noise), 3) AS distance
        FROM apart
    )
    SELECT tenant, CAST($day AS DATE) AS date, measure, value, size,
           arg_min(middle, {{'distance': distance, 'middle': middle}}) AS expected, min(distance) AS distance
    FROM distances GROUP BY tenant, measure, value, size ORDER BY tenant, measure
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
    connection.register("watched", pa.table({"measure": [measure.name for measure in MEASURES]} | rules))
    connection.register("today", measures)
    distance_rows: pa.Table = connection.sql(DISTANCES, params={"day": day}).to_arrow_table()
    return distance_rows
