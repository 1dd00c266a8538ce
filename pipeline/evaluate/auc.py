"""AUC over human labels of pairs, pooled over queries (scikit-learn)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.bootstrap import ENDS
from darklode.pipeline.base.types import Doubles as Floats
from darklode.pipeline.base.types import Rows
from darklode.pipeline.evaluate.paired import MIN_CLUSTERS, ResamplingSettings, holm, linearized_interval, rotation_p
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import TABLES

AUC = Stage("auc", 3, ("manual_labels", "manual_scores"), ("evaluation", "evaluation_pairs"))

MEASURES = {"AUC-SAT": "satisfaction", "AUC-REL": "relevance"}
PART = "labelled"

_RANKS_AT_ONCE = 1_000_000  # pairs × permutations per batch; about 50 bytes each

SCORED = """
    SELECT concat_ws(chr(0), tenant, query_id) AS query_id, satisfaction, relevance,
           list(score ORDER BY place) AS scores
    FROM manual_labels JOIN manual_scores USING (tenant, query_id, text_id) JOIN asked USING (system)
    WHERE $tenant IS NULL OR tenant = $tenant
    GROUP BY tenant, query_id, text_id, satisfaction, relevance ORDER BY tenant, query_id, text_id
"""


def area(labels: NDArray[np.bool_], scores: Floats, weights: NDArray[Any] | None = None) -> float:
    """Area under the ROC curve over all pairs; NaN if all labels are equal.

    Args:
        labels: shape (n_pairs,).
        scores: shape (n_pairs,); NaN ranks below any score.
        weights: of the pairs.

    Source: ScalingNote, 4.1.2.
    """
    from sklearn.metrics import roc_auc_score

    counted = np.ones(len(labels), bool) if weights is None else weights > 0
    if len(np.unique(labels[counted])) < 2:
        return float("nan")
    ranked = np.where(np.isnan(scores), -np.inf, scores)
    order = np.unique(ranked, return_inverse=True)[1]  # AUC depends on ranks only, and scikit-learn rejects -inf
    return float(roc_auc_score(labels, order, sample_weight=weights))


def auc(tables: Tables, output: Output, settings: EvaluateSettings, *, systems: Sequence[str], seed: int) -> None:
    """Write each system's AUC by satisfaction and by relevance, and the pairwise differences.

    Intervals resample queries with all their pairs. Differences are tested by swapping the two systems' ranks within
    queries. There is no interval if fewer than `MIN_CLUSTERS` queries have a label of one kind: a single such pair
    would look as if it did not vary.

    Args:
        tables: `manual_labels` and `manual_scores`.
        output: `evaluation` and `evaluation_pairs`.
        settings: resamples and permutations.
        systems: names, in the order of the tables.
        seed: of the resampling.
    """
    labels = tables.read("manual_labels", ["tenant"])
    tenants = pc.unique(labels["tenant"]).sort().to_pylist()
    means: Rows = []
    pairs: Rows = []
    for tenant in [None, *(tenants if len(tenants) > 1 else [])]:
        differences: Rows = []
        tests = len(MEASURES) * len(systems) * (len(systems) - 1) // 2
        chance = ResamplingSettings(settings.n_resamples, settings.permutations, seed, tests)
        for measure, labelled in _labelled_pairs(tables, tenant, systems):
            where = {"tenant": tenant, "part": PART, "measure": measure, "queries": labelled.queries}
            means += [where | row for row in labelled.areas(systems, chance)]
            differences += [where | row for row in labelled.differences(systems, chance)]
        for row, corrected in zip(differences, holm([row["p"] for row in differences]), strict=True):
            pairs.append(row | {"p_holm": corrected})
    output.write("evaluation", pa.Table.from_pylist(means, schema=TABLES["evaluation"].schema))
    output.write("evaluation_pairs", pa.Table.from_pylist(pairs, schema=TABLES["evaluation_pairs"].schema))


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs with human labels of one measure, both labels present.

    Attributes:
        labels: shape (n_pairs,).
        scores: by system, shape (n_pairs, n_systems).
        query: query index of each pair, from 0.
    """

    labels: NDArray[np.bool_]
    scores: Floats
    query: NDArray[np.int64]

    @property
    def queries(self) -> int:
        return int(self.query.max()) + 1

    def areas(self, systems: Sequence[str], chance: ResamplingSettings) -> Iterator[dict[str, Any]]:
        """Columns of `evaluation`: each system's AUC with a percentile interval over queries."""
        drawn = _drawn_queries(self.queries, chance)
        for at, name in enumerate(systems):
            scores = self.scores[:, at]
            resampled = [area(self.labels, scores, weights[self.query]) for weights in drawn]
            low, high = np.nanpercentile(resampled, ENDS)
            ends = {"low": float(low), "high": float(high)}
            yield {"system": name, "ceiling": 1.0, "value": area(self.labels, scores)} | ends

    def differences(self, systems: Sequence[str], chance: ResamplingSettings) -> Iterator[dict[str, Any]]:
        """Columns of `evaluation_pairs`: each later system against each earlier one."""
        values = [area(self.labels, scores) for scores in self.scores.T]
        adds = [influence(self.labels, scores, self.query) for scores in self.scores.T]
        clusters = min(len(np.unique(self.query[self.labels == kind])) for kind in (True, False))
        for other, system in combinations(range(len(systems)), 2):
            row: dict[str, Any] = {"system": systems[system], "other": systems[other], "clusters": clusters}
            row |= {"difference": values[system] - values[other], "low": None, "high": None}
            if clusters >= MIN_CLUSTERS:
                ends = np.array(linearized_interval(row["difference"], adds[system] - adds[other], chance))
                row["low"], row["high"] = row["difference"] + _small_sample_factor(clusters) * (
                    ends - row["difference"]
                )
            yield row | {"p": rank_swap_p(self.labels, self.scores[:, [system, other]], self.query, chance)}


def _small_sample_factor(clusters: int) -> float:
    """Factor that widens an interval for few clusters (Student's t)."""
    return float(stdtrit(clusters - 1, 0.975) / ndtri(0.975) * np.sqrt(clusters / (clusters - 1)))


def _labelled_pairs(tables: Tables, tenant: str | None, systems: Sequence[str]) -> Iterator[tuple[str, LabelledPairs]]:
    """The labelled pairs for each measure with both labels."""
    with tables.connect() as connection:
        connection.register("asked", pa.table({"system": list(systems), "place": range(len(systems))}))
        rows = connection.sql(SCORED, params={"tenant": tenant}).to_arrow_table()
    for measure, column in MEASURES.items():
        labelled_rows = rows.filter(pc.is_valid(rows[column])).combine_chunks()
        labels = np.asarray(labelled_rows[column].to_numpy(), bool)
        if len(np.unique(labels)) < 2:
            continue
        flat = pc.fill_null(pc.list_flatten(labelled_rows["scores"]), float("nan")).to_numpy()
        scores = np.asarray(flat, np.float64).reshape(len(labels), len(systems))
        query = labelled_rows["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
        yield measure, LabelledPairs(labels, scores, np.asarray(query, np.int64))


def influence(labels: NDArray[np.bool_], scores: Floats, query: NDArray[np.int64]) -> Floats:
    """Contribution of each query's pairs to the pooled AUC, shape (n_queries,); sums to 0.

    Args:
        labels: shape (n_pairs,), of both kinds.
        scores: shape (n_pairs,); NaN ranks below any score.
        query: query index of each pair, from 0.

    Source: Obuchowski 1997, Nonparametric analysis of clustered ROC curve data.
    """
    ranked = np.where(np.isnan(scores), -np.inf, scores)
    positive, negative = np.sort(ranked[labels]), np.sort(ranked[~labels])
    below = [np.searchsorted(negative, ranked[labels], side) for side in ("left", "right")]
    above = [len(positive) - np.searchsorted(positive, ranked[~labels], side) for side in ("left", "right")]
    share = np.empty(len(labels))
    share[labels] = (below[0] + below[1]) / 2 / len(negative)
    share[~labels] = (above[0] + above[1]) / 2 / len(positive)
    share -= share[labels].mean()
    return np.asarray(np.bincount(query, share / np.where(labels, len(positive), len(negative))), np.float64)


def rank_swap_p(
    labels: NDArray[np.bool_], scores: Floats, query: NDArray[np.int64], chance: ResamplingSettings
) -> float:
    """Two-sided p-value of the difference of two AUCs under random swaps of the systems within queries.

    Args:
        labels: shape (n_pairs,), of both kinds.
        scores: of the two systems, shape (n_pairs, 2); NaN ranks below any score.
        query: query index of each pair, from 0.
        chance: number of permutations and seed.

    Source: Venkatraman and Begg 1996, A distribution-free procedure for comparing receiver operating characteristic
    curves from a paired experiment (ranks are swapped, because scores of two systems have different units).
    """
    first, other = (_double_ranks(each) for each in scores.T)
    least = abs(_areas_of_ranks(labels, first[None]) - _areas_of_ranks(labels, other[None])) - 1e-12

    def reaches(bits: NDArray[np.uint8]) -> NDArray[np.bool_]:
        reached_counts = []
        for some in np.array_split(bits, -(-len(bits) * len(labels) // _RANKS_AT_ONCE)):
            turned = some[:, query].astype(bool)
            swapped = np.where(turned, other, first), np.where(turned, first, other)
            areas = [_areas_of_ranks(labels, each) for each in swapped]
            reached_counts.append(np.abs(areas[0] - areas[1]) >= least)
        return np.concatenate(reached_counts)

    return float(rotation_p(int(query.max()) + 1, reaches, chance))


def _double_ranks(scores: Floats) -> NDArray[np.int64]:
    """Twice the ascending ranks of scores; doubled, because ties get the mean rank, which may be a half."""
    _, rank_index, counts = np.unique(
        np.where(np.isnan(scores), -np.inf, scores), return_inverse=True, return_counts=True
    )
    return np.asarray((2 * np.cumsum(counts) - counts + 1)[rank_index], np.int64)


def _areas_of_ranks(labels: NDArray[np.bool_], ranks: NDArray[np.int64]) -> Floats:
    """`area` for each row of ranks, shape (n_rows, n_pairs), in linear time."""
    rows, width = len(ranks), 2 * len(labels) + 1
    places = ranks + width * np.arange(rows)[:, None]
    negatives = np.bincount(places[:, ~labels].ravel(), minlength=rows * width).reshape(rows, width)
    below = np.cumsum(negatives, axis=1) - negatives / 2
    return np.asarray(below.ravel()[places[:, labels]].mean(axis=1) / (~labels).sum())


def _drawn_queries(n: int, chance: ResamplingSettings) -> NDArray[np.uint16]:
    """Bootstrap counts of each query, shape (resamples, n)."""
    random, drawn = np.random.default_rng(chance.seed), np.empty((chance.resamples, n), np.uint16)
    for row in drawn:
        row[:] = random.multinomial(n, np.full(n, 1 / n))
    return drawn
