"""The figures of one part of the run: a row of `validation`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.raters import Confusion, cohens_kappa, confusion, cross_validated_kappa, enough, fit_threshold
from pipeline.raters.kappa import kappa_of_table, quadratic
from pipeline.validation.interval import UNKNOWN, Figure, estimate
from pipeline.validation.labels import Answered
from pipeline.validation.resampling import bootstrap
from pipeline.validation.scope import Scope
from pipeline.validation.strata import Strata, merge_empty

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
    answered, sample, held = scope.answered, scope.sample, scope.answered.stratum >= 0
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
        "tied": int((held & ~answered.labelled & (answered.votes > 0)).sum()),
        "skipped": int((held & (answered.votes == 0)).sum()),
        "outside": int((~held & answered.labelled).sum()),
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


def run_kappa(strata: Strata, resamples: int, seed: int) -> Figure:
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


def _sample_kappa(said: Answered, resamples: int, seed: int) -> Figure:
    code = 2 * ~said.relevant + ~said.positive  # in the order of `Confusion` but for the two kinds of errors

    def kappa(sums: _Floats) -> _Floats:
        hits, false, missed, rest = (sums[..., place] for place in range(4))
        return cohens_kappa(Confusion(hits, false, missed, rest))

    return bootstrap(_by_query(said, code, 4), kappa, resamples, seed) if len(code) else UNKNOWN


def _weighted_kappa(scope: Scope, said: Answered, resamples: int, seed: int) -> Figure:
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


def weights(scope: Scope, pairs: Answered) -> _Floats:
    """How many pairs of the scope each labelled pair stands for."""
    own = np.flatnonzero(np.isin(scope.verdict, READ) & (scope.pairs > 0))
    merged, to = merge_empty(scope.strata(READ))
    of = np.zeros(len(scope.pairs))
    of[own[to >= 0]] = (merged.pairs / np.maximum(merged.n, 1))[to[to >= 0]]
    return np.asarray(of[pairs.stratum])


def _by_query(pairs: Answered, code: NDArray[np.int64], n: int, weight: _Floats | None = None) -> _Floats:
    names, query = np.unique(pairs.query, return_inverse=True)
    sums = np.bincount(query * n + code, weight, minlength=len(names) * n)
    return np.asarray(sums.reshape(len(names), n), np.float64)


def _fitted(scope: Scope, said: Answered, seed: int) -> dict[str, object]:
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
