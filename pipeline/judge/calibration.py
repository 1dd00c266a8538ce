"""The stage `calibrate`: compare the judge with human labels before it judges the pool.

Labels are compared by kappa, probabilities by a reliability curve and the expected calibration error; if configured,
the threshold is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import (
    MIN_LABELS,
    MIN_OF_EACH,
    ThresholdFit,
    cohens_kappa,
    confusion,
    cross_validated_kappa,
    fit_threshold,
    has_enough_labels,
)
from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.judge.grade_thresholds import ScoreGradedJudge, fit_grades, thresholds_by_tenant
from darklode.pipeline.judge.human_labels import human_labels, sampling_weights
from darklode.pipeline.judge.logistic import Logistic, log_odds
from darklode.pipeline.judge.pairs import pair_blocks
from darklode.pipeline.judge.port import Judge, TrainableJudge
from darklode.pipeline.judge.session import JudgingSession
from darklode.pipeline.judge.threshold import fit_smooth_threshold
from darklode.pipeline.judge.training import compare_judges, query_numbers, train_judges
from darklode.schemas.judging import NO_JUDGE, JudgeSettings
from darklode.schemas.review_tables import CALIBRATION, HUMAN_LABELS, RELIABILITY

CALIBRATE = Stage("calibrate", 8, ("queries", "chunks", "pool"), ("human_labels", "calibration", "reliability"))

MAX_BINS = 10
"""Maximum number of bins of the reliability curve; more make each bin's share less certain."""
_Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""

_Floats = NDArray[np.float64]


def calibrate(
    tables: Tables,
    output: Output,
    settings: JudgeSettings,
    *,
    judge_for: Callable[[TenantChunks], Judge],
    tenant: str,
    seed: int,
) -> None:
    """Judge the pairs labelled by people and compare; without a judge, only the labels are written.

    Labels are those of the file `human_labels` and the judged chunks of the pool; where both label a pair, the file's.

    Each tenant is compared separately. With fewer than `MIN_LABELS` labelled pairs with a probability, or fewer than
    `MIN_OF_EACH` relevant or not relevant ones, labels are compared, but no curve is computed and no threshold fitted.
    For a judge trained on labels, cross-validated replies are compared (`training.compare_judges`), and the threshold
    is fitted by `fit_smooth_threshold`.

    Args:
        tables: must contain `queries`, `chunks` and `pool`, and `judged_chunks` if there is no file.
        output: receives `human_labels`, `calibration`, `reliability`, and unusable labels as rejects.
        settings: settings of the judge; `human_labels` is the file of labels, if there is one.
        judge_for: builds a tenant's judge.
        tenant: tenant of labels that name none.
        seed: random seed of the cross-validation folds.

    Raises:
        InputError: the file cannot be read, or labels no pair of the pool.
    """
    labels = _labels(tables, output, settings, tenant)
    output.write("human_labels", labels)
    if settings.kind == NO_JUDGE:
        return
    with JudgingSession(output, labels.num_rows) as session:
        for tenant_name in pc.unique(labels["tenant"]).to_pylist():
            tenant_labels = labels.filter(pc.equal(labels["tenant"], tenant_name))
            chunks = TenantChunks(tables, tenant_name)
            with closing(pair_blocks(tables, chunks, tenant_labels)) as blocks:
                judge, replies = compare_judges(session, judge_for(chunks), blocks, tenant_labels, seed)
            _write_comparison(
                output, tenant_name, judge, settings, Comparison.from_replies(tenant_labels, replies), seed
            )


# Of graded judgments, those below the judge's lowest grade of a relevant pair are not relevant, as for the judge.
JUDGED_LABELS_SQL = """
    SELECT tenant, query_id, chunk_id,
           CASE WHEN max(relevance) OVER () > 1 AND relevance < {lowest} THEN 0 ELSE relevance END AS relevance,
           CAST(NULL AS DOUBLE) AS weight
    FROM judged_chunks SEMI JOIN pool USING (tenant, query_id, chunk_id) WHERE relevance IS NOT NULL
"""


def _labels(tables: Tables, output: Output, settings: JudgeSettings, tenant: str) -> pa.Table:
    """Rows of `human_labels`, sorted by key."""
    lowest_grade = min(settings.verdict_grades(), default=1)
    labels = HUMAN_LABELS.empty()
    if settings.human_labels is not None:
        labels = human_labels(tables, output, settings.human_labels, tenant, lowest_grade)
    if "judged_chunks" not in tables:
        return labels
    with tables.connect() as connection:
        connection.register("labels", labels)
        judged = JUDGED_LABELS_SQL.format(lowest=lowest_grade)
        query = f"FROM labels UNION ALL FROM ({judged}) ANTI JOIN labels USING (tenant, query_id, chunk_id)"
        rows = connection.sql(f"FROM ({query}) ORDER BY tenant, query_id, chunk_id").to_arrow_table()
    return HUMAN_LABELS.rows({name: rows[name] for name in HUMAN_LABELS.schema.names})


def calibrated_judge(tables: Tables, judges: Judges) -> Callable[[TenantChunks], Judge]:
    """Build the judges of a run's tenants, with fitted thresholds and trained on human labels where configured.

    Args:
        tables: must contain `calibration` and `pool` for fitted thresholds, `human_labels` for training; judges with
            scores get the grades in `calibration`, if any.
        judges: builds judges from the run's settings.

    Raises:
        SettingsError: no threshold could be fitted for a tenant.
    """
    if judges.settings.threshold == "fitted":
        judges = replace(judges, thresholds=fitted_thresholds(tables))
    judge_for = train_judges(tables, judges) if "human_labels" in tables else judges
    return _with_grades(tables, judge_for) if judges.settings.can_fit_grades and "calibration" in tables else judge_for


def _with_grades(tables: Tables, judge_for: Callable[[TenantChunks], Judge]) -> Callable[[TenantChunks], Judge]:
    """Add grades to the judges of tenants with fitted grade thresholds."""
    thresholds = thresholds_by_tenant(tables.read("calibration").to_pylist())

    def build(chunks: TenantChunks) -> Judge:
        judge = judge_for(chunks)
        return ScoreGradedJudge(judge, thresholds[chunks.tenant]) if chunks.tenant in thresholds else judge

    return build


def fitted_thresholds(tables: Tables) -> dict[str, float]:
    """Read the fitted threshold of each tenant of the pool.

    Args:
        tables: must contain `calibration` and `pool`.

    Raises:
        SettingsError: a tenant has none.
    """
    rows = tables.read("calibration", ["tenant", "fitted_threshold"]).to_pylist()
    thresholds = {row["tenant"]: row["fitted_threshold"] for row in rows if row["fitted_threshold"] is not None}
    tenant_names = tables.sql("SELECT DISTINCT tenant FROM pool ORDER BY tenant")["tenant"].to_pylist()
    missing = [tenant for tenant in tenant_names if tenant not in thresholds]
    if missing:
        raise SettingsError(
            f"judge.threshold: none could be fitted for {', '.join(missing[:5])}; at least {MIN_LABELS} labelled pairs "
            f"with a probability are needed, {MIN_OF_EACH} of them relevant and {MIN_OF_EACH} not, and a judge that "
            "agrees with them better than chance; label more, or give a number"
        )
    return thresholds


def _write_comparison(
    output: Output, tenant: str, judge: Judge, settings: JudgeSettings, compared: Comparison, seed: int
) -> None:
    """Write a tenant's row of `calibration` and, with enough labels, its rows of `reliability`."""
    rated = compared.with_probability()
    row: dict[str, object] = {"tenant": tenant, "judge_id": judge.judge_id, "probabilities": len(rated.query)}
    threshold: float | None = settings.cut if not settings.panel or settings.vote == "mean" else None
    relevant = compared.relevant
    if rated.has_enough_labels:
        curve = reliability_curve(rated.probability, rated.positive)
        fit = _fit_row(rated, fit_smooth_threshold if isinstance(judge, TrainableJudge) else fit_threshold, seed)
        output.write("reliability", _reliability(tenant, curve))
        row |= {"ece": curve.ece, **fit, **(_grade_row(rated, seed) if settings.can_fit_grades else {})}
        fitted = fit["fitted_threshold"]
        if settings.threshold == "fitted" and fitted is not None:
            threshold, relevant = fitted, compared.relevant_from(fitted)
    counts = confusion(relevant[compared.read], compared.positive[compared.read])
    row |= {"threshold": threshold, "kappa": finite_or_none(cohens_kappa(counts))}
    row |= {name: int(count) for name, count in counts._asdict().items()}
    row |= {"labels": len(compared.read), "unreadable": int((~compared.read).sum())}
    output.write("calibration", pa.Table.from_pylist([row], schema=CALIBRATION.schema))


def _fit_row(rated: Comparison, fit: ThresholdFit, seed: int) -> dict[str, float | None]:
    """Fit probabilities and threshold, and compute the threshold's kappa on the same and on held-out labels; None if
    they cannot be fitted.
    """
    slope, intercept = fit_probabilities(rated.probability, rated.positive, rated.weight)
    row = {"slope": slope, "intercept": intercept}
    threshold = fit(rated.probability, rated.positive, rated.weight)
    if threshold is None:
        return row | dict.fromkeys(("fitted_threshold", "fitted_kappa", "cross_validated_kappa"))
    held_out_kappa = cross_validated_kappa(rated.probability, rated.positive, rated.query, seed, rated.weight, fit)
    return row | {
        "fitted_threshold": threshold[0],
        "fitted_kappa": threshold[1],
        "cross_validated_kappa": finite_or_none(held_out_kappa),
    }


def fit_probabilities(
    probability: NDArray[np.float32], positive: NDArray[np.bool_], weight: _Floats | None = None
) -> tuple[float, float] | tuple[None, None]:
    """Slope and intercept of the logistic regression of labels on the log-odds of probabilities (Platt 1999).

    Args:
        probability: the judge's probabilities, shape (n_pairs,).
        positive: whether people labelled each pair relevant, shape (n_pairs,); both values must occur.
        weight: number of labels that each counts as, shape (n_pairs,); None: 1.

    Returns:
        None twice if the labels do not rise with the probabilities.
    """
    model = Logistic.fit(log_odds(probability)[:, None], positive, weight=weight)
    return (model.weights[0], model.intercept) if model.weights[0] > 0 else (None, None)


def _grade_row(rated: Comparison, seed: int) -> dict[str, object]:
    """Fit the thresholds of grades; no columns if people give no usable grades."""
    fitted = fit_grades(rated.probability, rated.relevance, rated.query, seed)
    if fitted is None:
        return {}
    return {"grades": fitted.grades, "grade_thresholds": fitted.thresholds, "grade_kappa": fitted.kappa}


def _reliability(tenant: str, curve: ReliabilityCurve) -> pa.Table:
    """Convert a curve to rows of `reliability`."""
    bins = len(curve.labels)
    columns = {field.name: getattr(curve, field.name) for field in fields(curve)}
    return RELIABILITY.rows({"tenant": pa.repeat(tenant, bins), "bin": list(range(bins))} | columns)


@dataclass(frozen=True)
class Comparison:
    """A tenant's labelled pairs with the judge's replies, by query; all of shape (n_pairs,).

    Attributes:
        query: query index of each pair, from 0.
        relevance: human label of the pair, 0 or a grade.
        read: whether the judge's reply was readable; `relevant` is valid only then.
        relevant: whether the judge labelled the pair relevant.
        probability: the judge's probability of relevance; NaN if it gave none.
        weight: weight of the label in fits, see `sampling_weights`; None: 1.
    """

    query: NDArray[np.int64]
    relevance: NDArray[np.int64]
    read: NDArray[np.bool_]
    relevant: NDArray[np.bool_]
    probability: NDArray[np.float32]
    weight: _Floats | None

    @classmethod
    def from_replies(cls, labels: pa.Table, replies: pa.Table) -> Comparison:
        """Build from rows of `human_labels` and the replies to the same pairs in the same order."""
        read = pc.is_valid(replies["relevant"]).to_numpy()
        probability = pc.if_else(replies["relevant"].is_valid(), replies["probability"], None)
        return cls(
            query=query_numbers(labels),
            relevance=labels["relevance"].to_numpy().astype(np.int64),
            read=read,
            relevant=pc.fill_null(replies["relevant"], False).to_numpy(),
            probability=pc.fill_null(probability, math.nan).to_numpy(),
            weight=sampling_weights(labels),
        )

    def with_probability(self) -> Comparison:
        """Select the pairs with a probability."""
        rows = np.isfinite(self.probability)
        weight = None if self.weight is None else self.weight[rows]
        values = {field.name: getattr(self, field.name)[rows] for field in fields(self) if field.name != "weight"}
        return Comparison(**values, weight=weight)

    def relevant_from(self, threshold: float) -> NDArray[np.bool_]:
        """Compute the judge's labels by another threshold; pairs without a probability keep theirs."""
        return np.where(np.isfinite(self.probability), self.probability >= np.float32(threshold), self.relevant)

    @property
    def positive(self) -> NDArray[np.bool_]:
        """Whether people labelled each pair relevant."""
        return np.asarray(self.relevance > 0)

    @property
    def has_enough_labels(self) -> bool:
        """Whether there are enough pairs for a curve and a threshold."""
        return has_enough_labels(self.positive)


@dataclass(frozen=True)
class ReliabilityCurve:
    """A reliability curve, one value per bin in order of probability; each of shape (n_bins,).

    Attributes:
        labels: number of labelled pairs.
        lowest: lowest probability.
        highest: highest probability.
        mean_probability: mean of the judge's probabilities.
        relevant_share: share labelled relevant by people.
        share_low: lower end of its 95 % Wilson interval.
        share_high: upper end.
    """

    labels: NDArray[np.int64]
    lowest: _Floats
    highest: _Floats
    mean_probability: _Floats
    relevant_share: _Floats
    share_low: _Floats
    share_high: _Floats

    @property
    def ece(self) -> float:
        """Expected calibration error, 0 to 1: mean gap between probability and share, weighted by bin sizes."""
        gaps = np.abs(self.mean_probability - self.relevant_share)
        return float(np.sum(self.labels * gaps) / np.sum(self.labels))


def reliability_curve(probability: NDArray[np.float32], positive: NDArray[np.bool_]) -> ReliabilityCurve:
    """Divide pairs into at most `MAX_BINS` bins of equal size; equal probabilities are never split, so bins can differ
    in size or be fewer.

    Equal-size bins follow Nguyen and O'Connor (2015): judges give most probabilities near 0 and 1, and bins of equal
    width would be empty in between.

    Args:
        probability: the judge's probabilities, shape (n_pairs,), n_pairs > 0, without NaN.
        positive: whether people labelled each pair relevant, shape (n_pairs,).
    """
    order = np.argsort(probability, kind="stable")
    sorted_probability = probability[order].astype(np.float64)
    sorted_positive = positive[order]
    bin_number = np.searchsorted(sorted_probability, sorted_probability) * MAX_BINS // len(sorted_probability)
    starts = np.flatnonzero(np.diff(bin_number, prepend=-1))
    sizes = np.diff(starts, append=len(sorted_probability))
    hits = np.add.reduceat(sorted_positive.astype(np.int64), starts)
    low, high = wilson(hits, sizes)
    return ReliabilityCurve(
        sizes,
        sorted_probability[starts],
        sorted_probability[starts + sizes - 1],
        _bin_means(sorted_probability, starts, sizes),
        hits / sizes,
        low,
        high,
    )


def _bin_means(values: _Floats, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> _Floats:
    """Compute the mean of each bin's values, shape (n_bins,)."""
    return np.asarray(np.add.reduceat(values, starts) / sizes)


def wilson(hits: NDArray[np.int64], n: NDArray[np.int64]) -> tuple[_Floats, _Floats]:
    """Compute the 95 % Wilson score intervals (1927) of the proportions `hits` ÷ `n`, n > 0.

    Vectorized; scipy's `binomtest(...).proportion_ci` takes one proportion and differs in the last bits.
    """
    share = hits / n
    spread = _Z_95 * _Z_95 / n
    middle = (share + spread / 2) / (1 + spread)
    half_width = np.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return np.maximum(middle - half_width, 0.0), np.minimum(middle + half_width, 1.0)
