"""Runs whose every label is known, and reviews of samples of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from darklode.pipeline.base.agreement import cohens_kappa, confusion
from darklode.pipeline.validate.estimates import LabelledStrata
from darklode.pipeline.validate.strata import Cells, stratify

SAMPLED = 0.1
"""Share of the queries."""

_Flags = NDArray[np.bool_]
_Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Scenario:
    """A run to be made up.

    Attributes:
        noise: of the judge: a good one (0.15) tells pairs apart, a bad one (0.8) hardly.
        recall: share of the positives that the judge is to find.
        clustering: standard deviation over queries of the log-odds of relevance; the judge's errors vary with it, too.
        queries: sampled queries; the run has ten times as many, of about 100 candidates, 6 % of them relevant.
        pairs: pairs to review.
        blind: share of the positives whose score is that of any pair: the judge misses them anywhere.
    """

    noise: float
    recall: float
    clustering: float
    queries: int
    pairs: int
    blind: float = 0.0


@dataclass(frozen=True)
class Reviewed:
    """A run: each pair's query and cell of `Cells`, whether it is relevant, and to the judge, shape (n_pairs,)."""

    query: _Counts
    cell: _Counts
    positive: _Flags
    said: _Flags
    cells: Cells

    @property
    def recall(self) -> float:
        return float((self.positive & self.said).sum() / self.positive.sum())

    @property
    def precision(self) -> float:
        return float((self.positive & self.said).sum() / self.said.sum())

    @property
    def kappa(self) -> float:
        return float(cohens_kappa(confusion(self.said, self.positive)))


def make(scenario: Scenario, seed: int) -> Reviewed:
    """Make a run up: relevance and the judge's score follow a pair's likeness to its query, the latter with noise."""
    random = np.random.default_rng(seed)
    queries = round(scenario.queries / SAMPLED)
    sizes = np.maximum(20, random.lognormal(np.log(95), 0.35, queries)).astype(np.int64)
    query = np.repeat(np.arange(queries), sizes)
    likeness = random.normal(size=len(query))
    of_query = random.normal(0, scenario.clustering, queries)[query]
    positive = _relevant(4 * likeness + of_query, 0.06, random)
    judge = random.normal(0, scenario.clustering, queries)[query]
    score = likeness + scenario.noise * random.normal(size=len(query)) + 0.2 * of_query + 0.2 * judge
    blind = np.flatnonzero(positive & (random.random(len(query)) < scenario.blind))
    score[blind] = random.choice(score, len(blind))
    cut = np.quantile(score[positive], 1 - scenario.recall)
    said = score >= cut
    permille = np.round(50 * expit(2.5 * (score - cut))).astype(np.int64) * 20
    several = (random.random(len(query)) < expit(likeness + 0.3)).astype(np.int64)
    key = ((~said).astype(np.int64) * 2 + several) * 1001 + permille
    values, cell, pairs = np.unique(key, return_inverse=True, return_counts=True)
    none = np.zeros(len(values), np.int64)
    cells = Cells(none, values // 2002, values // 1001 % 2, values % 1001, pairs, none)
    return Reviewed(query, cell, positive, said, cells)


def _relevant(log_odds: NDArray[np.float64], share: float, random: np.random.Generator) -> _Flags:
    low, high = -40.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(log_odds + middle).mean() < share else (low, middle)
    return np.asarray(random.random(len(log_odds)) < expit(log_odds + low))


def review(run: Reviewed, scenario: Scenario, random: np.random.Generator) -> LabelledStrata:
    """Draw queries and pairs as `review_sample` does, and label them without an error."""
    number = np.full(int(run.query.max()) + 1, -1)
    number[random.choice(len(number), scenario.queries, replace=False)] = np.arange(scenario.queries)
    candidates = np.flatnonzero(number[run.query] >= 0)
    cells = run.cells
    there = np.bincount(run.cell[candidates], minlength=len(cells.pairs))
    strata = stratify(replace(cells, candidates=there), scenario.pairs)
    of_cell = np.empty(len(cells.pairs), np.int64)
    for place, one in enumerate(strata):
        of_cell[one.cells] = place
    stratum = of_cell[run.cell[candidates]]
    order = np.lexsort((random.random(len(candidates)), stratum))
    ordered = stratum[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, np.arange(len(strata)))[ordered]
    rows = candidates[order[rank < np.array([one.sampled for one in strata])[ordered]]]
    code = number[run.query[rows]] * len(strata) + of_cell[run.cell[rows]]
    labelled, relevant = (
        np.bincount(some, minlength=scenario.queries * len(strata)).reshape(scenario.queries, len(strata))
        for some in (code, code[run.positive[rows]])
    )
    sizes = np.bincount(of_cell, cells.pairs, minlength=len(strata)).astype(np.int64)
    return LabelledStrata(sizes, np.array([one.verdict == 0 for one in strata]), labelled, relevant)


def normal_interval(strata: LabelledStrata) -> tuple[float, float]:
    """Recall with the 95 % interval of the textbook: the stratified binomial variance, by the delta method."""
    n, x = strata.n_labelled, strata.n_relevant
    share = x / np.maximum(n, 1)
    total, variance = strata.pairs * share, strata.pairs**2 * share * (1 - share) / np.maximum(n - 1, 1)
    found, missed = (float(total[strata.is_found == side].sum()) for side in (True, False))
    of_found, of_missed = (float(variance[strata.is_found == side].sum()) for side in (True, False))
    recall = found / (found + missed)
    half = norm.ppf(0.975) * np.sqrt(missed**2 * of_found + found**2 * of_missed) / (found + missed) ** 2
    return recall - half, recall + half
