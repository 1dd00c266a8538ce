"""Validation metrics of a scope of the run (all, a tenant, or a retriever's pairs): one row of `validation`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import (
    Confusion,
    cohens_kappa,
    confusion,
    cross_validated_kappa,
    fit_threshold,
    has_enough_labels,
    kappa_of_table,
    quadratic,
)
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.bootstrap import IntervalEstimate
from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.validate.estimates import (
    UNKNOWN_ESTIMATE,
    LabelledStrata,
    bootstrap,
    estimate,
    merge_empty,
)
from darklode.pipeline.validate.labels import ReviewedPairs

STRATA_SQL = """
    SELECT position, tenant, retriever, verdict, pairs
    FROM review_strata ORDER BY position, tenant, retriever NULLS FIRST
"""
QUERY_COUNTS_SQL = "SELECT tenant, count(*) AS n FROM queries GROUP BY tenant ORDER BY tenant"

_Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Scope:
    """A part of the run, and its reviewed pairs.

    Attributes:
        tenant: name of the tenant; None: all tenants.
        tenants: names of the tenants in the scope.
        retriever: name of the retriever whose pairs count; None: pairs of all retrievers.
        pairs: number of pairs in the run per stratum, shape (n_strata,).
        verdict: the judge's verdict of each stratum, shape (n_strata,).
        reviewed: reviewed pairs.
        queries: number of queries in the run.
    """

    tenant: str | None
    tenants: tuple[str, ...]
    retriever: str | None
    pairs: _Counts
    verdict: NDArray[np.object_]
    reviewed: ReviewedPairs
    queries: int

    @cached_property
    def sample(self) -> ReviewedPairs:
        """Labelled pairs of the sample."""
        return self.reviewed.take(self.reviewed.is_labelled & (self.reviewed.stratum >= 0))

    def size(self, *verdicts: str) -> int:
        """Number of pairs in the run with these verdicts."""
        return int(self.pairs[np.isin(self.verdict, verdicts)].sum())

    def strata(self, verdicts: tuple[str, ...]) -> LabelledStrata:
        """Build the strata with these verdicts, with the labels of each query; empty strata are left out."""
        strata_of_verdicts = np.flatnonzero(np.isin(self.verdict, verdicts) & (self.pairs > 0))
        sample = self.sample
        stratum_position = np.full(len(self.pairs), -1)
        stratum_position[strata_of_verdicts] = np.arange(len(strata_of_verdicts))
        column = stratum_position[sample.stratum]
        rows = column >= 0
        query = np.unique(sample.query, return_inverse=True)[1]
        return LabelledStrata.count(
            self.pairs[strata_of_verdicts],
            self.verdict[strata_of_verdicts] == "relevant",
            query[rows],
            column[rows],
            sample.positive[rows],
        )


def scopes(tables: Tables) -> Iterator[Scope]:
    """All tenants together, each tenant if there are several, and each retriever.

    Args:
        tables: must contain `queries`, `pool`, `verdicts`, `review_sample`, `review_strata` and `reviews`.
    """
    strata, queries = tables.sql(STRATA_SQL), tables.sql(QUERY_COUNTS_SQL)
    queries_by_tenant = dict(zip(queries["tenant"].to_pylist(), queries["n"].to_pylist(), strict=True))
    retrievers = sorted(pc.unique(strata["retriever"]).drop_null().to_pylist())
    reviewed = ReviewedPairs.from_tables(tables, retrievers)
    n_queries = sum(queries_by_tenant.values())
    verdict, names = _verdicts(strata), tuple(queries_by_tenant)
    is_total = pc.is_null(strata["retriever"])
    yield Scope(None, names, None, _pairs(strata.filter(is_total), len(verdict)), verdict, reviewed, n_queries)
    if len(queries_by_tenant) > 1:
        for tenant, n in queries_by_tenant.items():
            own = strata.filter(pc.and_(is_total, pc.equal(strata["tenant"], tenant)))
            tenant_pairs = reviewed.take(reviewed.tenant == tenant)
            yield Scope(tenant, (tenant,), None, _pairs(own, len(verdict)), verdict, tenant_pairs, n)
    for column, retriever in enumerate(retrievers):
        own = strata.filter(pc.fill_null(pc.equal(strata["retriever"], retriever), False))
        retriever_pairs = reviewed.take(reviewed.found_by[:, column])
        yield Scope(None, names, retriever, _pairs(own, len(verdict)), verdict, retriever_pairs, n_queries)


def _verdicts(strata: pa.Table) -> NDArray[np.object_]:
    position = strata["position"].to_numpy()
    values_by_position = np.empty(int(position.max(initial=-1)) + 1, dtype=object)
    values_by_position[position] = strata["verdict"].to_numpy(zero_copy_only=False)
    return values_by_position


def _pairs(strata: pa.Table, n: int) -> _Counts:
    return np.bincount(strata["position"].to_numpy(), strata["pairs"].to_numpy(), minlength=n).astype(np.int64)


READABLE_VERDICTS = ("relevant", "not relevant")
JUDGED_VERDICTS = (*READABLE_VERDICTS, "unreadable")
ALL_VERDICTS = (*JUDGED_VERDICTS, "unjudged")

_Floats = NDArray[np.float64]


def validation_row(scope: Scope, threshold: float | None, resamples: int, seed: int) -> dict[str, object]:
    """Compute a row of `validation`.

    Args:
        scope: the part of the run.
        threshold: the judge's threshold; None if tenants differ.
        resamples: number of resamples of the queries, for each bootstrap interval.
        seed: random seed of the intervals and folds.
    """
    reviewed = scope.reviewed
    sample = scope.sample
    in_sample = reviewed.stratum >= 0
    n_verdicts = scope.size(*JUDGED_VERDICTS)
    n_unreadable = scope.size("unreadable")
    all_strata = scope.strata(ALL_VERDICTS)
    readable_strata = scope.strata(READABLE_VERDICTS)
    n_queries = len(np.unique(sample.query))
    share = n_queries / scope.queries if scope.queries else 1.0
    estimates = estimate(all_strata, share, np.random.default_rng(seed))
    readable_pairs = sample.take(sample.is_readable)
    unreadable_pairs = sample.take(~sample.is_readable)
    row: dict[str, object] = {
        "tenant": scope.tenant,
        "retriever": scope.retriever,
        "labelled": len(sample.query),
        "queries": n_queries,
        "tied": int((in_sample & ~reviewed.is_labelled & (reviewed.votes > 0)).sum()),
        "skipped": int((in_sample & (reviewed.votes == 0)).sum()),
        "outside": int((~in_sample & reviewed.is_labelled).sum()),
        "shown": int(sample.shown.sum()),
        "verdicts": n_verdicts,
        "unreadable": n_unreadable,
        "null_rate": n_unreadable / n_verdicts if n_verdicts else None,
        "unread_relevant": int(unreadable_pairs.positive.sum()),
        "unread_not_relevant": int((~unreadable_pairs.positive).sum()),
        "threshold": threshold,
    }
    row |= {
        name: int(count)
        for name, count in confusion(readable_pairs.relevant, readable_pairs.positive)._asdict().items()
    }
    estimated = {
        "precision": estimates.precision,
        "recall": estimates.recall,
        "missed": estimates.missed,
        "kappa": run_kappa(readable_strata, resamples, seed),
        "sample_kappa": _sample_kappa(readable_pairs, resamples, seed),
        "weighted_kappa": _weighted_kappa(scope, readable_pairs, resamples, seed),
    }
    for name, interval_estimate in estimated.items():
        row |= interval_estimate.columns(name)
    return row | (_fit_threshold_row(scope, readable_pairs, seed) if scope.retriever is None else {})


def run_kappa(strata: LabelledStrata, resamples: int, seed: int) -> IntervalEstimate:
    """Compute Cohen's kappa over all pairs of the run, extrapolated from the labelled shares of the strata.

    In a resample without a label in some stratum, the stratum keeps its share.
    """
    if not (strata.is_estimable(True) and strata.is_estimable(False)):
        return UNKNOWN_ESTIMATE
    merged, _ = merge_empty(strata)
    mean_label = merged.n_relevant / np.maximum(merged.n_labelled, 1)
    n = len(merged.pairs)

    def kappa(sums: _Floats) -> _Floats:
        labelled, relevant = sums[..., :n], sums[..., n:]
        share = np.where(labelled > 0, relevant / np.maximum(labelled, 1), mean_label)
        yes = merged.pairs * share
        no = merged.pairs * (1 - share)
        sides = [(yes, merged.is_found), (no, merged.is_found), (yes, ~merged.is_found), (no, ~merged.is_found)]
        return cohens_kappa(Confusion(*(np.asarray(counts[..., side].sum(axis=-1)) for counts, side in sides)))

    return bootstrap(np.hstack([merged.labelled, merged.relevant]), kappa, resamples, seed)


def _sample_kappa(readable: ReviewedPairs, resamples: int, seed: int) -> IntervalEstimate:
    """Compute Cohen's kappa over the labelled pairs of the sample, unweighted."""
    code = 2 * ~readable.relevant + ~readable.positive  # cells in the order of `Confusion`

    def kappa(sums: _Floats) -> _Floats:
        hits, false, missed, true_negatives = (sums[..., cell] for cell in range(4))
        return cohens_kappa(Confusion(hits, false, missed, true_negatives))

    return bootstrap(_by_query(readable, code, 4), kappa, resamples, seed) if len(code) else UNKNOWN_ESTIMATE


def _weighted_kappa(scope: Scope, readable: ReviewedPairs, resamples: int, seed: int) -> IntervalEstimate:
    """Compute the quadratic-weighted kappa (Cohen, 1968); not relevant counts as grade 0, whatever the judge's
    grade.
    """
    rows = np.isfinite(readable.grade) | ~readable.relevant
    graded = readable.take(rows)
    judge = np.where(graded.relevant, np.maximum(np.nan_to_num(graded.grade), 1), 0).astype(np.int64)
    values = np.unique(np.concatenate([judge, graded.relevance]))
    if max(judge.max(initial=0), 0) < 2 or graded.relevance.max(initial=0) < 2:
        return UNKNOWN_ESTIMATE
    cell = np.searchsorted(values, judge) * len(values) + np.searchsorted(values, graded.relevance)
    counts = _by_query(graded, cell, len(values) ** 2, weights(scope, graded))
    cost = quadratic(values.astype(np.float64))

    def kappa(sums: _Floats) -> _Floats:
        return kappa_of_table(sums.reshape(*sums.shape[:-1], len(values), len(values)), cost)

    return bootstrap(counts, kappa, resamples, seed)


def weights(scope: Scope, pairs: ReviewedPairs) -> _Floats:
    """Compute how many pairs of the scope each labelled pair represents, shape (n_pairs,)."""
    readable_strata = np.flatnonzero(np.isin(scope.verdict, READABLE_VERDICTS) & (scope.pairs > 0))
    merged, target = merge_empty(scope.strata(READABLE_VERDICTS))
    weight_of = np.zeros(len(scope.pairs))
    weight_of[readable_strata[target >= 0]] = (merged.pairs / np.maximum(merged.n_labelled, 1))[target[target >= 0]]
    return np.asarray(weight_of[pairs.stratum])


def _by_query(pairs: ReviewedPairs, code: NDArray[np.int64], n: int, weight: _Floats | None = None) -> _Floats:
    """Count the pairs of each query by code (0 to n - 1), optionally weighted, shape (n_queries, n)."""
    names, query = np.unique(pairs.query, return_inverse=True)
    sums = np.bincount(query * n + code, weight, minlength=len(names) * n)
    return np.asarray(sums.reshape(len(names), n), np.float64)


def _fit_threshold_row(scope: Scope, readable: ReviewedPairs, seed: int) -> dict[str, object]:
    """Fit the threshold on the labelled pairs with a probability; no columns if there are too few labels."""
    rated = readable.take(np.isfinite(readable.probability))
    if not has_enough_labels(rated.positive):
        return {}
    weight = weights(scope, rated)
    threshold = fit_threshold(rated.probability, rated.positive, weight)
    if threshold is None:
        return {}
    query = np.unique(rated.query, return_inverse=True)[1]
    held_out_kappa = cross_validated_kappa(rated.probability, rated.positive, query, seed, weight)
    finite_kappa = finite_or_none(held_out_kappa)
    return {"fitted_threshold": threshold[0], "fitted_kappa": threshold[1], "cross_validated_kappa": finite_kappa}
