"""The figures of one part of the run, a row of `validation`: of the whole, a tenant, or what a retriever found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.raters import (
    Confusion,
    cohens_kappa,
    confusion,
    cross_validated_kappa,
    enough,
    fit_threshold,
    kappa_of_table,
    quadratic,
)
from darklode.pipeline.validate.interval import (
    UNKNOWN,
    IntervalEstimate,
    LabelledStrata,
    bootstrap,
    estimate,
    merge_empty,
)
from darklode.pipeline.validate.labels import ReviewedPairs

STRATA = """
    SELECT position, tenant, retriever, verdict, pairs
    FROM review_strata ORDER BY position, tenant, retriever NULLS FIRST
"""
QUERIES = "SELECT tenant, count(*) AS n FROM queries GROUP BY tenant ORDER BY tenant"

_Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Scope:
    """A part of the run, and what people said of it.

    Attributes:
        tenant: None: all.
        tenants: those of the part.
        retriever: None: all pairs, whoever found them.
        pairs: pairs of the run in each stratum, shape (n_strata,).
        verdict: what the judge said of each stratum, shape (n_strata,).
        reviewed: pairs of the part that somebody reviewed.
        queries: queries of its tenants.
    """

    tenant: str | None
    tenants: tuple[str, ...]
    retriever: str | None
    pairs: _Counts
    verdict: NDArray[np.object_]
    reviewed: ReviewedPairs
    queries: int

    @property
    def sample(self) -> ReviewedPairs:
        """Labelled pairs of the sample."""
        return self.reviewed.take(self.reviewed.labelled & (self.reviewed.stratum >= 0))

    def size(self, *verdicts: str) -> int:
        """Pairs of the run with one of these verdicts."""
        return int(self.pairs[np.isin(self.verdict, verdicts)].sum())

    def strata(self, verdicts: tuple[str, ...]) -> LabelledStrata:
        """The strata of some verdicts, with the labels of each query."""
        own, sample = np.flatnonzero(np.isin(self.verdict, verdicts) & (self.pairs > 0)), self.sample
        place = np.full(len(self.pairs), -1)
        place[own] = np.arange(len(own))
        column = place[sample.stratum]
        rows = column >= 0
        query = np.unique(sample.query, return_inverse=True)[1]
        shape = (int(query.max(initial=-1)) + 1, len(own))
        labelled, relevant = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        np.add.at(labelled, (query[rows], column[rows]), 1)
        np.add.at(relevant, (query[rows], column[rows]), sample.positive[rows])
        return LabelledStrata(self.pairs[own], self.verdict[own] == "relevant", labelled, relevant)


def scopes(tables: Tables) -> Iterator[Scope]:
    """All tenants together, each tenant where there are several, and each retriever.

    Args:
        tables: holds `queries`, `pool`, `verdicts`, `review_sample`, `review_strata` and `reviews`.
    """
    strata, queries = tables.sql(STRATA), tables.sql(QUERIES)
    of_tenant = dict(zip(queries["tenant"].to_pylist(), queries["n"].to_pylist(), strict=True))
    retrievers = sorted(pc.unique(strata["retriever"]).drop_null().to_pylist())
    reviewed, every = ReviewedPairs.of(tables, retrievers), sum(of_tenant.values())
    verdict, names = _verdicts(strata), tuple(of_tenant)
    anyone = pc.is_null(strata["retriever"])
    yield Scope(None, names, None, _pairs(strata.filter(anyone), len(verdict)), verdict, reviewed, every)
    if len(of_tenant) > 1:
        for tenant, n in of_tenant.items():
            own = strata.filter(pc.and_(anyone, pc.equal(strata["tenant"], tenant)))
            of = reviewed.take(reviewed.tenant == tenant)
            yield Scope(tenant, (tenant,), None, _pairs(own, len(verdict)), verdict, of, n)
    for column, retriever in enumerate(retrievers):
        own = strata.filter(pc.fill_null(pc.equal(strata["retriever"], retriever), False))
        of = reviewed.take(reviewed.found_by[:, column])
        yield Scope(None, names, retriever, _pairs(own, len(verdict)), verdict, of, every)


def _verdicts(strata: pa.Table) -> NDArray[np.object_]:
    position = strata["position"].to_numpy()
    found = np.empty(int(position.max(initial=-1)) + 1, dtype=object)
    found[position] = strata["verdict"].to_numpy(zero_copy_only=False)
    return found


def _pairs(strata: pa.Table, n: int) -> _Counts:
    return np.bincount(strata["position"].to_numpy(), strata["pairs"].to_numpy(), minlength=n).astype(np.int64)


READ = ("relevant", "not relevant")
JUDGED = (*READ, "unreadable")
ALL = (*JUDGED, "unjudged")

_Floats = NDArray[np.float64]


def figures(scope: Scope, threshold: float | None, resamples: int, seed: int) -> dict[str, object]:
    """One row of `validation`.

    Args:
        scope: the part of the run.
        threshold: the judge's in force there.
        resamples: of the queries, for each bootstrap interval.
        seed: of the intervals and folds.
    """
    reviewed, sample, held = scope.reviewed, scope.sample, scope.reviewed.stratum >= 0
    verdicts, unreadable = scope.size(*JUDGED), scope.size("unreadable")
    everything, read = scope.strata(ALL), scope.strata(READ)
    queries = len(np.unique(sample.query))
    share = queries / scope.queries if scope.queries else 1.0
    found = estimate(everything, share, np.random.default_rng(seed))
    said, unread = sample.take(sample.read), sample.take(~sample.read)
    row: dict[str, object] = {
        "tenant": scope.tenant,
        "retriever": scope.retriever,
        "labelled": len(sample.query),
        "queries": queries,
        "tied": int((held & ~reviewed.labelled & (reviewed.votes > 0)).sum()),
        "skipped": int((held & (reviewed.votes == 0)).sum()),
        "outside": int((~held & reviewed.labelled).sum()),
        "shown": int(sample.shown.sum()),
        "verdicts": verdicts,
        "unreadable": unreadable,
        "null_rate": unreadable / verdicts if verdicts else None,
        "unread_relevant": int(unread.positive.sum()),
        "unread_not_relevant": int((~unread.positive).sum()),
        "threshold": threshold,
    }
    row |= {name: int(n) for name, n in confusion(said.relevant, said.positive)._asdict().items()}
    estimated = {
        "precision": found.precision,
        "recall": found.recall,
        "missed": found.missed,
        "kappa": run_kappa(read, resamples, seed),
        "sample_kappa": _sample_kappa(said, resamples, seed),
        "weighted_kappa": _weighted_kappa(scope, said, resamples, seed),
    }
    for name, figure in estimated.items():
        row |= figure.columns(name)
    return row | (_fitted(scope, said, seed) if scope.retriever is None else {})


def run_kappa(strata: LabelledStrata, resamples: int, seed: int) -> IntervalEstimate:
    """Cohen's kappa over all pairs of the strata, whose shares of relevant pairs are those of the labelled ones.

    A resample without a label of some stratum keeps the stratum's share.
    """
    if not (strata.known(True) and strata.known(False)):
        return UNKNOWN
    merged, _ = merge_empty(strata)
    kept, n = merged.x / np.maximum(merged.n, 1), len(merged.pairs)

    def kappa(sums: _Floats) -> _Floats:
        labelled, relevant = sums[..., :n], sums[..., n:]
        share = np.where(labelled > 0, relevant / np.maximum(labelled, 1), kept)
        yes, no = merged.pairs * share, merged.pairs * (1 - share)
        sides = [(yes, merged.found), (no, merged.found), (yes, ~merged.found), (no, ~merged.found)]
        return cohens_kappa(Confusion(*(np.asarray(of[..., side].sum(axis=-1)) for of, side in sides)))

    return bootstrap(np.hstack([merged.labelled, merged.relevant]), kappa, resamples, seed)


def _sample_kappa(said: ReviewedPairs, resamples: int, seed: int) -> IntervalEstimate:
    code = 2 * ~said.relevant + ~said.positive  # in the order of `Confusion` but for the two kinds of errors

    def kappa(sums: _Floats) -> _Floats:
        hits, false, missed, rest = (sums[..., place] for place in range(4))
        return cohens_kappa(Confusion(hits, false, missed, rest))

    return bootstrap(_by_query(said, code, 4), kappa, resamples, seed) if len(code) else UNKNOWN


def _weighted_kappa(scope: Scope, said: ReviewedPairs, resamples: int, seed: int) -> IntervalEstimate:
    """Quadratic-weighted kappa (Cohen, 1968); what is not relevant is grade 0, whatever grade the judge gave."""
    rows = np.isfinite(said.grade) | ~said.relevant
    graded = said.take(rows)
    judge = np.where(graded.relevant, np.maximum(np.nan_to_num(graded.grade), 1), 0).astype(np.int64)
    values = np.unique(np.concatenate([judge, graded.relevance]))
    if max(judge.max(initial=0), 0) < 2 or graded.relevance.max(initial=0) < 2:
        return UNKNOWN
    place = np.searchsorted(values, judge) * len(values) + np.searchsorted(values, graded.relevance)
    counts = _by_query(graded, place, len(values) ** 2, weights(scope, graded))
    cost = quadratic(values.astype(np.float64))

    def kappa(sums: _Floats) -> _Floats:
        return kappa_of_table(sums.reshape(*sums.shape[:-1], len(values), len(values)), cost)

    return bootstrap(counts, kappa, resamples, seed)


def weights(scope: Scope, pairs: ReviewedPairs) -> _Floats:
    """How many pairs of the scope each labelled pair stands for."""
    own = np.flatnonzero(np.isin(scope.verdict, READ) & (scope.pairs > 0))
    merged, to = merge_empty(scope.strata(READ))
    of = np.zeros(len(scope.pairs))
    of[own[to >= 0]] = (merged.pairs / np.maximum(merged.n, 1))[to[to >= 0]]
    return np.asarray(of[pairs.stratum])


def _by_query(pairs: ReviewedPairs, code: NDArray[np.int64], n: int, weight: _Floats | None = None) -> _Floats:
    names, query = np.unique(pairs.query, return_inverse=True)
    sums = np.bincount(query * n + code, weight, minlength=len(names) * n)
    return np.asarray(sums.reshape(len(names), n), np.float64)


def _fitted(scope: Scope, said: ReviewedPairs, seed: int) -> dict[str, object]:
    rated = said.take(np.isfinite(said.probability))
    if not enough(rated.positive):
        return {}
    weight = weights(scope, rated)
    found = fit_threshold(rated.probability, rated.positive, weight)
    if found is None:
        return {}
    query = np.unique(rated.query, return_inverse=True)[1]
    crossed = cross_validated_kappa(rated.probability, rated.positive, query, seed, weight)
    known = crossed if math.isfinite(crossed) else None
    return {"fitted_threshold": found[0], "fitted_kappa": found[1], "cross_validated_kappa": known}
