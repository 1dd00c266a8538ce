"""Measures of a day, each on a scale with constant variance for ordinary days.

Counts are on a log scale, so differences are log ratios. Shares are transformed by arcsine of the square root. A
profile (clicks by position, searches by hour) is the root of its likelihood ratio per count against earlier admitted
days.
"""

from dataclasses import dataclass
from typing import Literal

import duckdb
import numpy as np
import pyarrow as pa

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.mine.admission.daily_statistics import MARKS_PER_DAY

Group = Literal["volume", "hours", "clicks", "results", "queries", "records"]


@dataclass(frozen=True)
class AdmissionMeasure:
    """A monitored measure.

    Attributes:
        name: name in the column `measure` of `day_measures`.
        scale: ratio (log of a count or ratio), share (arcsine of the root of a share of a total), or profile (distance
            of a distribution).
        sides: which deviations are implausible: low values, high values, or both.
        spread: prior standard deviation of ordinary days around their forecast, on the scale.
        words: the measure in words, for the reasons shown to people.
        group: measures whose small deviations are pooled, since the same fault moves them together.
        is_content: whether a deviation makes wrong labels (clicks on other documents, copies, lost positions) instead
            of being explained by other users, queries or documents; such a level is never learned without a decision.
        surge: the side on which a sale, a campaign or a launch moves the measure, if any.
        overdispersion: sampling variance as a multiple of the one of independent counts.
    """

    name: str
    scale: Literal["ratio", "share", "profile"]
    sides: Literal["low", "high", "both"]
    spread: float
    words: str
    group: Group
    is_content: bool = True
    overdispersion: float = 1.0
    surge: Literal["low", "high", ""] = ""

    @property
    def trend(self) -> float:
        """Prior standard deviation of the change per week: 20 % of the searches, else half of the spread."""
        return VOLUME_TREND if self.name == "searches" else self.spread / 2

    @property
    def weekday(self) -> float:
        """Prior standard deviation of a weekday's effect: a weekend may have a tenth of the searches."""
        return VOLUME_WEEKDAY if self.name == "searches" else 2 * self.spread

    def plain(self, value: float) -> str:
        """Format a value of the scale."""
        if self.scale == "ratio":
            return f"{np.exp(value):,.3g}" if value < np.log(1000) else f"{np.exp(value):,.0f}"
        return f"{np.sin(value) ** 2:.0%}" if self.scale == "share" else f"{value:.2f}"


RATIO_SPREAD, SHARE_SPREAD, PROFILE_SPREAD = 0.10, 0.05, 0.07
"""Prior spreads: 10 % of a count; 5 points for a share of one half, 2 points for a share of 5 %."""
VOLUME_TREND, VOLUME_WEEKDAY = 0.2, 1.0
"""Priors of the number of searches: growth of 3 % a day is 20 % a week; e^-2 = 14 % is two standard deviations."""
HOURS_OVERDISPERSION = 4.0
"""The searches of a session fall into one hour, and neighbouring quiet hours are empty together."""

MEASURES = (
    AdmissionMeasure("searches", "ratio", "both", RATIO_SPREAD, "searches", "volume", is_content=False, surge="high"),
    AdmissionMeasure(
        "searches_per_session", "ratio", "both", RATIO_SPREAD, "searches a session", "volume", is_content=False
    ),
    AdmissionMeasure(
        "impressions_per_search", "ratio", "both", RATIO_SPREAD, "impressions a search", "results", is_content=False
    ),
    AdmissionMeasure("clicks_per_search", "ratio", "both", RATIO_SPREAD, "clicks a search", "clicks"),
    AdmissionMeasure(
        "repeats", "share", "high", SHARE_SPREAD, "of the rows repeat others or are clicks on their own", "records"
    ),
    AdmissionMeasure(
        "bots", "share", "high", SHARE_SPREAD, "of the impressions are bots'", "records", is_content=False
    ),
    AdmissionMeasure(
        "without_position", "share", "high", SHARE_SPREAD, "of the impressions have no position", "records"
    ),
    AdmissionMeasure("without_session", "share", "high", SHARE_SPREAD, "of the searches have no session", "records"),
    AdmissionMeasure(
        "twins", "share", "high", SHARE_SPREAD, "of the searches equal another one of the same second", "records"
    ),
    AdmissionMeasure(
        "copied", "share", "high", SHARE_SPREAD, "of the queries and results have an earlier day's counts", "records"
    ),
    AdmissionMeasure(
        "top_query",
        "share",
        "high",
        SHARE_SPREAD,
        "of the searches are for one query",
        "queries",
        is_content=False,
        surge="high",
    ),
    AdmissionMeasure("top_session", "share", "high", SHARE_SPREAD, "of the searches are one session's", "records"),
    AdmissionMeasure(
        "known_queries",
        "share",
        "low",
        SHARE_SPREAD,
        "of the searches are for queries of earlier days",
        "queries",
        is_content=False,
        surge="low",
    ),
    AdmissionMeasure(
        "known_documents",
        "share",
        "low",
        SHARE_SPREAD,
        "of the impressions are of documents of earlier days",
        "queries",
        is_content=False,
        surge="low",
    ),
    AdmissionMeasure(
        "known_shown", "share", "low", SHARE_SPREAD, "of what head queries show was shown for them before", "results"
    ),
    AdmissionMeasure(
        "known_clicked",
        "share",
        "low",
        SHARE_SPREAD,
        "of the clicks of head queries are on documents clicked before",
        "clicks",
    ),
    AdmissionMeasure(
        "clicks_by_place", "profile", "high", PROFILE_SPREAD, "distance of the click-through by position", "clicks"
    ),
    AdmissionMeasure(
        "shown_by_place", "profile", "high", PROFILE_SPREAD, "distance of the impressions by position", "results"
    ),
    AdmissionMeasure(
        "searches_by_hour",
        "profile",
        "high",
        PROFILE_SPREAD,
        "distance of the searches by hour",
        "hours",
        False,
        HOURS_OVERDISPERSION,
    ),
    AdmissionMeasure(
        "silent_hours",
        "share",
        "high",
        SHARE_SPREAD,
        "of the usual searches fall into hours without any",
        "hours",
        False,
        HOURS_OVERDISPERSION,
    ),
)

RATIO_COLUMNS = {
    "searches_per_session": ("searches", "sessions"),
    "impressions_per_search": ("impressions", "searches"),
    "clicks_per_search": ("clicks", "searches"),
}
SHARE_COLUMNS = {
    "repeats": ("repeats", "rows"),
    "bots": ("bots", "shown"),
    "without_position": ("without_position", "impressions"),
    "without_session": ("without_session", "searches"),
    "twins": ("twins", "searches"),
    "top_query": ("top_query", "searches"),
    "top_session": ("top_session", "searches"),
}

# A tenant without a row today had earlier days, so today counts as a day with zero searches.
FIGURES_OF_TODAY_SQL = """
    SELECT *, coalesce(impressions, 0) + coalesce(bots, 0) AS shown
    FROM (SELECT DISTINCT tenant FROM (FROM figures_before UNION ALL FROM figures))
    LEFT JOIN figures USING (tenant) ORDER BY tenant
"""

EARLIER_COUNTS_SQL = """
    SELECT tenant, place, sum({column}[place]) AS n
    FROM figures_before, (SELECT unnest(range(1, $length + 1)) AS place)
    WHERE date >= CAST($day AS DATE) - $days GROUP BY tenant, place ORDER BY tenant, place
"""

# A full sample of a day has only the marks up to its largest, `max_mark`: marks above the smallest such limit could be
# missing by chance, so they are not counted.
KNOWN_SHARES_SQL = """
    WITH recent AS (FROM marks_before WHERE date >= CAST($day AS DATE) - $days),
    sample_limits AS (
        SELECT tenant, kind, min(max_mark) AS max_mark FROM (
            SELECT tenant, kind, CASE WHEN count(*) >= $max_marks THEN max(mark) END AS max_mark
            FROM (FROM recent UNION ALL FROM marks) WHERE kind <> 'pair' GROUP BY tenant, kind, date
        ) GROUP BY tenant, kind
    ), known_marks AS (SELECT DISTINCT tenant, kind, mark, true AS known FROM recent WHERE kind <> 'pair'),
    pair_sums AS (SELECT tenant, mark, sum(clicks) AS clicks FROM recent WHERE kind = 'pair' GROUP BY tenant, mark),
    query_sums AS (SELECT tenant, query, sum(clicks) AS clicks FROM recent WHERE kind = 'pair' GROUP BY tenant, query),
    equal_counts AS (
        SELECT tenant, max(n) AS n FROM (
            SELECT m.tenant, count(*) AS n
            FROM marks_before b JOIN marks m USING (tenant, kind, mark, shown, clicks)
            WHERE b.date >= CAST($day AS DATE) - $copy_days GROUP BY m.tenant, b.date
        ) GROUP BY tenant
    ), pairs_today AS (
        SELECT m.tenant, m.query, m.shown, m.clicks, h.clicks AS query_clicks, p.clicks AS pair_clicks
        FROM marks m JOIN query_sums h ON h.tenant = m.tenant AND h.query = m.query
        LEFT JOIN pair_sums p ON p.tenant = m.tenant AND p.mark = m.mark WHERE m.kind = 'pair'
    )
    SELECT tenant, CASE kind WHEN 'query' THEN 'known_queries' ELSE 'known_documents' END AS measure,
           sum(shown) FILTER (known) AS known_count, sum(shown) AS total, count(*) AS size
    FROM marks JOIN sample_limits USING (tenant, kind) LEFT JOIN known_marks USING (tenant, kind, mark)
    WHERE tenant IN (SELECT tenant FROM recent) AND (max_mark IS NULL OR mark <= max_mark) GROUP BY tenant, kind
    UNION ALL
    SELECT tenant, 'known_shown', sum(shown) FILTER (pair_clicks IS NOT NULL), sum(shown), count(DISTINCT query)
    FROM pairs_today GROUP BY tenant
    UNION ALL
    SELECT tenant, 'known_clicked', sum(clicks) FILTER (pair_clicks > 0), sum(clicks), sum(clicks)
    FROM pairs_today WHERE query_clicks > 0 GROUP BY tenant
    UNION ALL
    SELECT tenant, 'copied', coalesce(any_value(n), 0), count(*), count(*)
    FROM marks LEFT JOIN equal_counts USING (tenant) WHERE tenant IN (SELECT tenant FROM recent) GROUP BY tenant
    ORDER BY measure, tenant
"""

PROFILE_COLUMNS = {
    "clicks_by_place": ("clicked_at", "shown_at"),
    "shown_by_place": ("shown_at", None),
    "searches_by_hour": ("searched_at", None),
}
CLOCK_SHIFTS = (-1, 0, 1)
"""Hours by which a day's searches may be shifted against the earlier ones: hours are in UTC, and users change to and
from summer time. Without it, office hours are held for ever after a change."""
KNOWN_DAYS = 28
"""Number of earlier days whose queries, documents and profiles count as known."""
COPY_DAYS = 8
"""Number of earlier days that a day may be a copy of: yesterday, or the same weekday."""


def compute_measures(connection: duckdb.DuckDBPyConnection, day: str) -> pa.Table:
    """Measures of a day: tenant, measure, value, size; undefined measures are left out.

    Args:
        connection: with `figures` and `marks` of the day, `figures_before` and `marks_before` of admitted days.
        day: ISO date.
    """
    today: pa.Table = connection.sql(FIGURES_OF_TODAY_SQL).to_arrow_table()
    count_columns = [name for name in today.column_names if pa.types.is_integer(today[name].type)]
    counts = {name: _to_floats(today[name]) for name in count_columns}
    ones = np.ones(today.num_rows)
    # By measure, the value and the sample size of each tenant. Adding 0.5 keeps the logarithm of a zero count finite.
    values_and_sizes = {"searches": (np.log(counts["searches"] + 0.5), ones)}
    for name, (numerator, denominator) in RATIO_COLUMNS.items():
        log_ratio = np.log((counts[numerator] + 0.5) / (counts[denominator] + 0.5))
        values_and_sizes[name] = (log_ratio, counts[denominator])
    for name, (part, total) in SHARE_COLUMNS.items():
        values_and_sizes[name] = (_arcsine(counts[part], counts[total]), counts[total])
    for name, (column, exposure_column) in PROFILE_COLUMNS.items():
        values_and_sizes[name] = _profile_distance(connection, day, today, column, exposure_column)
    values_and_sizes["silent_hours"] = _silent_hours(connection, day, today)
    tables = [_measure_rows(today["tenant"], name, *columns) for name, columns in values_and_sizes.items()]
    return pa.concat_tables([*tables, _known_shares(connection, day)])


def _to_floats(column: pa.ChunkedArray) -> Doubles:
    """A column's values, 0 for null."""
    numbers: Doubles = column.fill_null(0).to_numpy().astype(np.float64)
    return numbers


def _arcsine(part: Doubles, total: Doubles) -> Doubles:
    """Arcsine of the square root of a share: its variance does not depend on the share."""
    transformed: Doubles = np.arcsin(np.sqrt(np.clip(part / np.maximum(total, 1), 0, 1)))
    return transformed


def _measure_rows(tenant: pa.ChunkedArray, name: str, value: Doubles, size: Doubles) -> pa.Table:
    """Rows of one measure, without the tenants for which it is undefined (size 0)."""
    rows = {"tenant": tenant, "measure": pa.repeat(name, len(value)), "value": np.round(value, 6), "size": size}
    return pa.table(rows).filter(pa.array(size > 0))


def _known_shares(connection: duckdb.DuckDBPyConnection, day: str) -> pa.Table:
    """Rows of the measures `known_…`: how much of the day's sampled traffic was seen on earlier days."""
    parameters = {"day": day, "days": KNOWN_DAYS, "copy_days": COPY_DAYS, "max_marks": MARKS_PER_DAY}
    rows: pa.Table = connection.sql(KNOWN_SHARES_SQL, params=parameters).to_arrow_table()
    known_count, total, size = (_to_floats(rows[name].cast(pa.float64())) for name in ("known_count", "total", "size"))
    value = np.round(_arcsine(known_count, total), 6)
    columns = {"tenant": rows["tenant"], "measure": rows["measure"], "value": value, "size": size}
    return pa.table(columns).filter(pa.array(total > 0))


def _profile_distance(
    connection: duckdb.DuckDBPyConnection, day: str, today: pa.Table, column: str, exposure_column: str | None
) -> tuple[Doubles, Doubles]:
    """Distance of each tenant's counts (by position or hour) from the earlier ones, and their total.

    With an exposure column, rates per exposure are compared. The total is 0 without earlier counts, which leaves the
    measure out.
    """
    observed = _to_matrix(today[column])
    earlier = _earlier_counts(connection, day, today, column)
    if exposure_column is None:
        expected = earlier + 0.5
    else:
        earlier_exposures = _earlier_counts(connection, day, today, exposure_column)
        expected = _to_matrix(today[exposure_column]) * (earlier + 0.5) / (earlier_exposures + 1)
    size = np.where(earlier.sum(axis=1) > 0, observed.sum(axis=1), 0)
    shifts = CLOCK_SHIFTS if column == "searched_at" else (0,)
    distances = [divergence(np.roll(observed, shift, axis=1), expected) for shift in shifts]
    return np.min(distances, axis=0), size


def _silent_hours(connection: duckdb.DuckDBPyConnection, day: str, today: pa.Table) -> tuple[Doubles, Doubles]:
    """Share of each tenant's usual searches that fall into hours without a search today, as after a truncation."""
    searches = _to_matrix(today["searched_at"])
    usual = _earlier_counts(connection, day, today, "searched_at")
    total = usual.sum(axis=1)
    size = np.where(total > 0, searches.sum(axis=1), 0)
    silent = [(usual * (np.roll(searches, shift, axis=1) == 0)).sum(axis=1) for shift in CLOCK_SHIFTS]
    return _arcsine(np.min(silent, axis=0), total), size


def _to_matrix(column: pa.ChunkedArray) -> Doubles:
    """Lists of equal length as a matrix, shape (n_rows, length); zeros for null."""
    rows = column.combine_chunks()
    width = max(rows.value_lengths().fill_null(0).to_pylist(), default=0)
    matrix = np.zeros((len(rows), width))
    matrix[rows.is_valid().to_numpy(zero_copy_only=False)] = rows.flatten().to_numpy().reshape(-1, width or 1)
    return matrix


def _earlier_counts(connection: duckdb.DuckDBPyConnection, day: str, today: pa.Table, column: str) -> Doubles:
    """Sums of a list column over the last `KNOWN_DAYS` days, for the tenants of `today`, shape (n_tenants, length)."""
    length = _to_matrix(today[column]).shape[1]
    parameters = {"day": day, "days": KNOWN_DAYS, "length": length}
    sums = connection.sql(EARLIER_COUNTS_SQL.format(column=column), params=parameters).fetchnumpy()
    tenants = np.array(today["tenant"].to_pylist(), object)  # sorted, so that searchsorted finds their rows
    matrix = np.zeros((len(tenants), length))
    matrix[np.searchsorted(tenants, sums["tenant"]), sums["place"] - 1] = sums["n"]
    return matrix


def divergence(observed: Doubles, expected: Doubles) -> Doubles:
    """Root of the likelihood ratio statistic per count (G / n) minus its expectation by chance, shape (n_rows,).

    Args:
        observed: counts, shape (n_rows, n_places).
        expected: in any unit, same shape; cells with neither expected nor observed counts are ignored.
    """
    total = np.maximum(observed.sum(axis=1, keepdims=True), 1)
    expected_share = expected / np.maximum(expected.sum(axis=1, keepdims=True), 1e-12)
    degrees_of_freedom = np.maximum((expected_share > 0).sum(axis=1) - 1, 0)
    share = observed / total
    ratio = np.where(share > 0, share, 1) / np.maximum(expected_share, 1e-12)
    g_per_count = 2 * np.where(share > 0, share * np.log(ratio), 0).sum(axis=1)  # scipy's rel_entr is slow to import
    # By chance alone, G has the mean of a chi-squared distribution: its degrees of freedom.
    by_chance = np.sqrt(degrees_of_freedom / total[:, 0])
    excess_distance: Doubles = np.maximum(np.sqrt(np.maximum(g_per_count, 0)) - by_chance, 0)
    return excess_distance
