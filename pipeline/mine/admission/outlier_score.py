"""Calibrated outlier score of a day: p-values of its measures against forecasts, combined into one per tenant.

A measure's deviation from its forecast has a t distribution. The p-values of all measures are combined twice: by the
Cauchy combination (Liu and Xie 2020), which finds one measure that is far off, and by Brown's method (Brown 1975),
which finds many that are slightly off; the null distribution of the latter is that of the tenant's own past days. The
smaller of the two counts, doubled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.mine.admission.forecast import DailySeries, Forecast, forecast
from darklode.pipeline.mine.admission.measures import MEASURES

COMPARED_DAYS = 56
"""Number of days before a day that it is compared with."""
MIN_DAYS = 5
"""Minimum number of earlier days for a comparison."""
MIN_CONTENT_P_VALUE = 0.01
"""Minimum p-value of the content measures of a held day whose surge widens the forecast."""
N_LEVEL_DAYS, LEVEL_WINDOW = 3, 7
"""A new level is the median deviation of so many latest deviating days of the days before."""
FISHER_PRIOR_DAYS, CORRELATION = 3.0, 1.5
"""Prior of the null distribution of Fisher's statistic: days that it counts for, and its variance as a multiple of the
one of independent measures.
"""
MAX_LOG_P = 9.0
"""Limit of a measure's -ln p in Fisher's statistic, which pools small deviations; one large deviation is found by the
Cauchy combination.
"""
N_MEASURES = len(MEASURES)

HISTORY_SQL = """
    SELECT tenant, measure, CAST($day AS DATE) - date AS age, value, size, expected, p_value, state, deviates
    FROM measures_before WHERE date >= CAST($day AS DATE) - $days ORDER BY tenant, measure, date
"""


@dataclass(frozen=True)
class DayScores:
    """Scores of a day.

    Attributes:
        tenants: sorted names, n_tenants of them; all arrays are in their order, and in the order of `MEASURES`.
        values, sizes: of today's measures, shape (n_tenants, n_measures); NaN where undefined.
        expected: forecasts; NaN if there are too few days.
        previous: value of the latest day before.
        distances: absolute deviation in standard deviations, 0 on the side that is not implausible.
        p_values: of each measure.
        night: p-value of each tenant's day, shape (n_tenants,); NaN if nothing can be compared.
        content: p-value of the content measures alone, shape (n_tenants,); 0 if the content cannot be compared.
        level: p-value of the agreement with the latest deviating days, shape (n_tenants,); NaN if there is none.
    """

    tenants: list[str]
    values: Doubles
    sizes: Doubles
    expected: Doubles
    previous: Doubles
    distances: Doubles
    p_values: Doubles
    night: Doubles
    content: Doubles
    level: Doubles

    @property
    def compared_values(self) -> tuple[Doubles, Doubles, Doubles]:
        """Values, forecasts and values of the day before."""
        return self.values, self.expected, self.previous

    def measure_rows(self, day: str) -> pa.Table:
        """Rows of `day_measures`."""
        tenant, measure = np.nonzero(np.isfinite(self.values))
        columns = {
            "tenant": pa.array(self.tenants, pa.string()).take(pa.array(tenant)),
            "date": pa.repeat(pa.scalar(date.fromisoformat(day), pa.date32()), len(tenant)),
            "measure": pa.array([MEASURES[number].name for number in measure], pa.string()),
            "value": self.values[tenant, measure],
            "size": self.sizes[tenant, measure],
        }
        for name, array in (("expected", self.expected), ("distance", self.distances), ("p_value", self.p_values)):
            numbers = array[tenant, measure]
            digits = np.array([float(f"{number:.6g}") for number in numbers])  # equal bytes on all processors
            columns[name] = pa.array(digits, pa.float64(), from_pandas=True)
        return pa.table(columns).sort_by([("tenant", "ascending"), ("measure", "ascending")])


@dataclass(frozen=True)
class _History:
    """Measures of the days before, the day before first, each of shape (n_tenants, n_measures, n_days).

    Attributes:
        values, sizes: NaN where there is none.
        residuals: values minus their forecasts.
        is_fitted: values that the forecast is fitted to: of admitted days, and the volume of held ones.
        is_in_tail: values that its spread is estimated from: of admitted days, and of held ones whose content is
            ordinary what a surge moves. So the next campaign is not held again.
        deviates: days of each tenant that deviated, shape (n_tenants, n_days).
    """

    values: Doubles
    sizes: Doubles
    residuals: Doubles
    is_fitted: NDArray[np.bool_]
    is_in_tail: NDArray[np.bool_]
    deviates: NDArray[np.bool_]


def score_day(connection: duckdb.DuckDBPyConnection, measures: pa.Table, day: str) -> DayScores:
    """Compare a day's measures with those of the days before.

    Args:
        connection: a connection with `measures_before`: rows of `day_measures` of earlier days that are not discarded,
            with the columns `state` of `log_days` and `deviates` (whether it has reasons). Held days count for the
            volume alone, whose weekdays they teach.
        measures: measures of the day: tenant, measure, value, size.
        day: ISO date.
    """
    tenants = sorted(set(measures["tenant"].to_pylist()))
    values, sizes = _today(measures, tenants)
    past = _read_history(connection, day, tenants)
    scales = {name: np.array([getattr(measure, name) for measure in MEASURES]) for name in MEASURE_FIELDS}
    fit = _fit(past, sizes, scales)
    shape = values.shape
    expected = fit.expected.reshape(shape)
    has_forecast = (fit.n_days.reshape(shape) >= MIN_DAYS) & np.isfinite(values)
    deviation = np.where(has_forecast, values - expected, np.nan)
    z, df = fit.standardize(deviation.ravel()).reshape(shape), fit.df(deviation.ravel()).reshape(shape)
    p_values = p_value(z, df, scales["sides"])
    is_content = scales["is_content"]
    return DayScores(
        tenants,
        values,
        sizes,
        np.where(has_forecast, expected, np.nan),
        _latest(past.values),
        np.where(_is_plausible_side(z, scales["sides"]), 0.0, np.abs(z)),
        p_values,
        combine(p_values, _past_p_values(past, fit, scales["sides"])),
        _content_p_values(p_values, is_content),
        _level_p_values(past, fit, deviation),
    )


MEASURE_FIELDS = ("name", "scale", "sides", "spread", "trend", "weekday", "is_content", "overdispersion")


def _today(measures: pa.Table, tenants: list[str]) -> tuple[Doubles, Doubles]:
    """Values and sizes of today, each of shape (n_tenants, n_measures)."""
    values = np.full((len(tenants), N_MEASURES), np.nan)
    sizes = np.ones_like(values)
    row, column = _cells(measures, tenants)
    values[row, column] = measures["value"].to_numpy()
    sizes[row, column] = measures["size"].to_numpy()
    return values, sizes


def _cells(measures: pa.Table, tenants: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of each row's tenant and measure."""
    rows = {tenant: number for number, tenant in enumerate(tenants)}
    columns = {measure.name: number for number, measure in enumerate(MEASURES)}
    row = np.array([rows[tenant] for tenant in measures["tenant"].to_pylist()], np.int64)
    return row, np.array([columns[name] for name in measures["measure"].to_pylist()], np.int64)


def _read_history(connection: duckdb.DuckDBPyConnection, day: str, tenants: list[str]) -> _History:
    rows: pa.Table = connection.sql(HISTORY_SQL, params={"day": day, "days": COMPARED_DAYS}).to_arrow_table()
    rows = rows.filter(pc.is_in(rows["tenant"], pa.array(tenants, pa.string())))
    shape = (len(tenants), N_MEASURES, COMPARED_DAYS)
    values, sizes, residuals = (np.full(shape, np.nan) for _ in range(3))
    p_values = np.full(shape, np.nan)
    is_held, deviates = (np.zeros((len(tenants), COMPARED_DAYS), bool) for _ in range(2))
    row, column = _cells(rows, tenants)
    back = rows["age"].to_numpy() - 1
    values[row, column, back] = rows["value"].to_numpy()
    sizes[row, column, back] = rows["size"].to_numpy()
    residuals[row, column, back] = rows["value"].to_numpy() - rows["expected"].to_numpy()
    p_values[row, column, back] = rows["p_value"].to_numpy()
    is_held[row, back] = np.array(rows["state"].to_pylist(), object) == "held"
    deviates[row, back] = rows["deviates"].to_numpy(zero_copy_only=False)
    is_admitted = np.isfinite(values) & ~is_held[:, None]
    is_volume = np.array([measure.name == "searches" for measure in MEASURES])
    is_content = np.array([measure.is_content for measure in MEASURES])
    is_surge = is_held & (_content_p_values(p_values.swapaxes(1, 2), is_content) >= MIN_CONTENT_P_VALUE)
    sign = np.array([{"low": -1, "high": 1, "": 0}[measure.surge] for measure in MEASURES])
    is_surge_side = residuals * sign[:, None] > 0
    return _History(
        values,
        sizes,
        residuals,
        is_admitted | (np.isfinite(values) & is_volume[:, None]),
        is_admitted | (is_surge[:, None] & is_surge_side),
        deviates,
    )


def _fit(past: _History, sizes: Doubles, scales: Mapping[str, NDArray[np.generic]]) -> Forecast:
    """Forecasts of all series, tenant by tenant and measure by measure."""
    typical = _latest(np.where(past.is_fitted, past.values, np.nan))
    typical = np.where(np.isnan(typical), 0.0, typical)
    spread, overdispersion = scales["spread"].astype(float), scales["overdispersion"].astype(float)
    by_chance = sampling_variance(scales["scale"][:, None], past.sizes, np.expand_dims(typical, 2))
    past_variance = spread[:, None] ** 2 + overdispersion[:, None] * by_chance
    by_chance_today = overdispersion * sampling_variance(scales["scale"], sizes, typical)
    n_series = sizes.size
    n_tenants = len(sizes)
    return forecast(
        DailySeries(
            past.values.reshape(n_series, -1),
            past.is_fitted.reshape(n_series, -1),
            past.is_in_tail.reshape(n_series, -1),
            np.where(np.isnan(past_variance), 1.0, past_variance).reshape(n_series, -1),
            (spread**2 + by_chance_today).ravel(),
            by_chance_today.ravel(),
            np.tile(scales["trend"].astype(float), n_tenants),
            np.tile(scales["weekday"].astype(float), n_tenants),
        )
    )


def sampling_variance(scale: NDArray[np.generic], sizes: Doubles, typical: Doubles) -> Doubles:
    """Variance of a measure by chance, which is large for few searches.

    Args:
        scale: scale of the measure (`AdmissionMeasure`).
        sizes: sample sizes.
        typical: usual values of the measure.
    """
    per_count = 1 / np.maximum(sizes * np.exp(np.where(scale == "ratio", typical, 0.0)), 1)
    by_scale: Doubles = np.where(
        scale == "ratio", per_count, np.where(scale == "share", 1 / (4 * sizes), 1 / (2 * sizes))
    )
    return by_scale


def _is_plausible_side(z: Doubles, sides: NDArray[np.generic]) -> NDArray[np.bool_]:
    plausible: NDArray[np.bool_] = ((sides == "low") & (z > 0)) | ((sides == "high") & (z < 0))
    return plausible


def p_value(z: Doubles, df: Doubles, sides: NDArray[np.generic]) -> Doubles:
    """P-values of standardized deviations; NaN for NaN.

    Args:
        z: deviations in standard deviations, shape (..., n_measures).
        df: degrees of freedom, same shape.
        sides: which deviations of each measure are implausible: low, high or both, shape (n_measures,).
    """
    from scipy.special import stdtr  # slow to import, and a night without news needs none of it

    one_sided = np.where(sides == "low", stdtr(df, z), stdtr(df, -z))
    p: Doubles = np.where(sides == "both", 2 * stdtr(df, -np.abs(z)), one_sided)
    return np.where(np.isnan(z), np.nan, np.clip(p, 1e-300, 1.0))


def cauchy_combination(p_values: Doubles) -> Doubles:
    """P-values combined over the last axis, without NaN; NaN if all are.

    The half-Cauchy form: for p near 1 the terms of the full form are large and negative, and hide a small p.

    Source: Liu and Xie 2020, Cauchy Combination Test, equal weights.
    """
    is_known = np.isfinite(p_values)
    n = is_known.sum(axis=-1)
    terms = np.where(is_known, 1 / np.tan(np.where(is_known, p_values, 1.0) * np.pi / 2), 0.0)
    combined = np.arctan2(1, terms.sum(axis=-1) / np.maximum(n, 1)) * 2 / np.pi
    result: Doubles = np.where(n > 0, combined, np.nan)
    return result


def combine(p_values: Doubles, past: Doubles) -> Doubles:
    """P-value of each tenant's day, shape (n_tenants,); NaN if it has no measure with a p-value.

    Args:
        p_values: of today's measures, shape (n_tenants, n_measures).
        past: of the past days, shape (n_tenants, n_measures, n_days).
    """
    by_group = []
    for group in dict.fromkeys(measure.group for measure in MEASURES):
        is_in = np.array([measure.group == group for measure in MEASURES])
        own = p_values[:, is_in]
        pooled = _brown(_fisher(own), np.isfinite(own).sum(axis=1), _fisher(past[:, is_in].swapaxes(1, 2)))
        by_group.append(cauchy_combination(np.stack([cauchy_combination(own), pooled], axis=1)))
    return cauchy_combination(np.stack(by_group, axis=1))


def _fisher(p_values: Doubles) -> Doubles:
    """Fisher's statistic over the last axis, NaN if there is no p-value."""
    is_known = np.isfinite(p_values)
    log_p = np.minimum(-np.log(np.where(is_known, p_values, 1.0)), MAX_LOG_P)
    return np.where(is_known.any(axis=-1), 2 * log_p.sum(axis=-1), np.nan)


def _brown(statistic: Doubles, n: NDArray[np.int64], past: Doubles) -> Doubles:
    """Upper tail of Fisher's statistic in a scaled chi-squared distribution with the moments of the past days.

    Its variance is at least that of independent measures: past days that hardly vary say little about a day to come.
    """
    from scipy.special import gammaincc

    days = np.isfinite(past).sum(axis=1)
    values = np.where(np.isfinite(past), past, 0.0)
    prior_mean, prior_variance = 2.0 * n, 4.0 * n * CORRELATION
    mean = (FISHER_PRIOR_DAYS * prior_mean + values.sum(axis=1)) / (FISHER_PRIOR_DAYS + days)
    squares = np.where(np.isfinite(past), (past - mean[:, None]) ** 2, 0.0).sum(axis=1)
    variance = (FISHER_PRIOR_DAYS * prior_variance + squares) / (FISHER_PRIOR_DAYS + days)
    variance = np.maximum(variance, 4.0 * n)
    scale = np.maximum(variance, 1e-9) / (2 * np.maximum(mean, 1e-9))
    degrees = 2 * mean**2 / np.maximum(variance, 1e-9)
    p: Doubles = gammaincc(degrees / 2, np.nan_to_num(statistic) / (2 * scale))
    return np.where(np.isfinite(statistic), np.clip(p, 1e-300, 1.0), np.nan)


def _past_p_values(past: _History, fit: Forecast, sides: NDArray[np.generic]) -> Doubles:
    """Leave-one-out p-values of the past days, shape (n_tenants, n_measures, n_days)."""
    z = fit.past_z.reshape(past.values.shape)
    df = np.where(z < 0, fit.df_low.reshape(z.shape[:2])[:, :, None], fit.df_high.reshape(z.shape[:2])[:, :, None])
    p = p_value(z.swapaxes(1, 2), df.swapaxes(1, 2), sides).swapaxes(1, 2)
    return np.where(past.is_in_tail & past.is_fitted, p, np.nan)


def _content_p_values(p_values: Doubles, is_content: NDArray[np.generic]) -> Doubles:
    """P-value of the content measures (last axis); 0 if what was clicked cannot be compared with earlier days."""
    clicked = [measure.name for measure in MEASURES].index("known_clicked")
    content = cauchy_combination(np.where(is_content.astype(bool), p_values, np.nan))
    return np.where(np.isfinite(p_values[..., clicked]), content, 0.0)


def _level_p_values(past: _History, fit: Forecast, deviation: Doubles) -> Doubles:
    """P-value of the day under the level of the latest deviating days, shape (n_tenants,)."""
    order = np.cumsum(past.deviates[:, :LEVEL_WINDOW], axis=1)
    chosen = past.deviates[:, :LEVEL_WINDOW] & (order <= N_LEVEL_DAYS)
    residuals = np.where(chosen[:, None, :], past.residuals[:, :, :LEVEL_WINDOW], np.nan)
    n = np.isfinite(residuals).sum(axis=2)
    total = np.where(np.isfinite(residuals), residuals, 0.0).sum(axis=2)
    shift = np.where(n > 0, total / np.maximum(n, 1), 0.0)
    remaining = (deviation - shift) / np.sqrt(1 + 1 / np.maximum(n, 1))
    z, df = fit.standardize(remaining.ravel()), fit.df(remaining.ravel())
    sides = np.full(N_MEASURES, "both")
    p = p_value(z.reshape(deviation.shape), df.reshape(deviation.shape), sides)
    return np.where(chosen.any(axis=1), cauchy_combination(p), np.nan)


def _latest(values: Doubles) -> Doubles:
    """The latest earlier value, shape (n_tenants, n_measures); NaN if there is none."""
    first = np.isfinite(values).argmax(axis=2)
    latest: Doubles = np.take_along_axis(values, first[:, :, None], axis=2)[:, :, 0]
    return latest
