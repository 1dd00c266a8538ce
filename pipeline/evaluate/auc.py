"""Area under the ROC curve (AUC) of systems' scores against human labels.

The pairs of all queries are pooled: AUC is the probability that a positive pair has a higher score than a negative
pair, of the same or of another query.
"""

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
from darklode.pipeline.base.bootstrap import INTERVAL_PERCENTILES
from darklode.pipeline.base.types import Doubles as Floats
from darklode.pipeline.base.types import Rows
from darklode.pipeline.evaluate.paired import MIN_CLUSTERS, ResamplingSettings, holm, linearized_interval, rotation_p
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import TABLES

AUC_STAGE = Stage("auc", 3, ("manual_labels", "manual_scores"), ("evaluation", "evaluation_pairs"))

MEASURES = {"AUC-SAT": "satisfaction", "AUC-REL": "relevance"}
"""Name of each measure, and the column of `manual_labels` that holds its labels."""
LABELLED_PART = "labelled"
"""Value of the column `part`: AUC is computed over all labelled pairs, not over a split."""

_RANKS_AT_ONCE = 1_000_000  # pairs × permutations per batch, at about 50 bytes each: bounds the memory

SCORED_PAIRS_SQL = """
    SELECT concat_ws(chr(0), tenant, query_id) AS query_id, satisfaction, relevance,
           list(score ORDER BY place) AS scores
    FROM manual_labels JOIN manual_scores USING (tenant, query_id, text_id) JOIN system_order USING (system)
    WHERE $tenant IS NULL OR tenant = $tenant
    GROUP BY tenant, query_id, text_id, satisfaction, relevance ORDER BY tenant, query_id, text_id
"""


def area(labels: NDArray[np.bool_], scores: Floats, weights: NDArray[Any] | None = None) -> float:
    """Compute the area under the ROC curve over all pairs; NaN if all labels are equal.

    Args:
        labels: whether each pair is positive, shape (n_pairs,).
        scores: a system's score of each pair, shape (n_pairs,); NaN (no score) ranks below any score.
        weights: weight of each pair, shape (n_pairs,), such as the bootstrap counts of its query; None: all 1.

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
        tables: must contain `manual_labels` and `manual_scores`.
        output: receives `evaluation` and `evaluation_pairs`.
        settings: numbers of resamples and permutations.
        systems: names of the systems, in the order of the output rows.
        seed: random seed of resamples and permutations.
    """
    labels = tables.read("manual_labels", ["tenant"])
    tenants = pc.unique(labels["tenant"]).sort().to_pylist()
    area_rows: Rows = []
    difference_rows: Rows = []
    for tenant in [None, *(tenants if len(tenants) > 1 else [])]:
        differences: Rows = []
        tests = len(MEASURES) * len(systems) * (len(systems) - 1) // 2
        resampling = ResamplingSettings(settings.n_resamples, settings.permutations, seed, tests)
        for measure, labelled in _labelled_pairs(tables, tenant, systems):
            row_key = {"tenant": tenant, "part": LABELLED_PART, "measure": measure, "queries": labelled.queries}
            area_rows += [row_key | row for row in labelled.areas(systems, resampling)]
            differences += [row_key | row for row in labelled.differences(systems, resampling)]
        for row, p_holm in zip(differences, holm([row["p"] for row in differences]), strict=True):
            difference_rows.append(row | {"p_holm": p_holm})
    output.write("evaluation", pa.Table.from_pylist(area_rows, schema=TABLES["evaluation"].schema))
    output.write("evaluation_pairs", pa.Table.from_pylist(difference_rows, schema=TABLES["evaluation_pairs"].schema))


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs with human labels for one measure, at least one of them positive and one negative.

    Attributes:
        labels: whether each pair is positive, shape (n_pairs,).
        scores: scores of each system, shape (n_pairs, n_systems); NaN if a system has no score.
        query: query index of each pair, from 0 without gaps, shape (n_pairs,).
    """

    labels: NDArray[np.bool_]
    scores: Floats
    query: NDArray[np.int64]

    @property
    def queries(self) -> int:
        """Number of queries."""
        return int(self.query.max()) + 1

    def areas(self, systems: Sequence[str], chance: ResamplingSettings) -> Iterator[dict[str, Any]]:
        """Yield rows of `evaluation`: each system's AUC with a bootstrap percentile interval over queries."""
        resamples = _drawn_queries(self.queries, chance)
        for column, system in enumerate(systems):
            scores = self.scores[:, column]
            resampled = [area(self.labels, scores, query_counts[self.query]) for query_counts in resamples]
            low, high = np.nanpercentile(resampled, INTERVAL_PERCENTILES)
            interval = {"low": float(low), "high": float(high)}
            yield {"system": system, "ceiling": 1.0, "value": area(self.labels, scores)} | interval

    def differences(self, systems: Sequence[str], chance: ResamplingSettings) -> Iterator[dict[str, Any]]:
        """Yield rows of `evaluation_pairs`: each later system against each earlier one."""
        areas = [area(self.labels, scores) for scores in self.scores.T]
        influences = [influence(self.labels, scores, self.query) for scores in self.scores.T]
        # Number of queries with a positive pair, or with a negative one: the smaller of the two.
        n_clusters = min(len(np.unique(self.query[self.labels == label])) for label in (True, False))
        for other, system in combinations(range(len(systems)), 2):
            row: dict[str, Any] = {"system": systems[system], "other": systems[other], "clusters": n_clusters}
            row |= {"difference": areas[system] - areas[other], "low": None, "high": None}
            if n_clusters >= MIN_CLUSTERS:
                ends = np.array(linearized_interval(row["difference"], influences[system] - influences[other], chance))
                widening = _small_sample_factor(n_clusters)
                row["low"], row["high"] = row["difference"] + widening * (ends - row["difference"])
            yield row | {"p": rank_swap_p(self.labels, self.scores[:, [system, other]], self.query, chance)}


def _small_sample_factor(clusters: int) -> float:
    """Compute the factor that widens a normal interval for few clusters (Student's t); near 1 for many."""
    return float(stdtrit(clusters - 1, 0.975) / ndtri(0.975) * np.sqrt(clusters / (clusters - 1)))


def _labelled_pairs(tables: Tables, tenant: str | None, systems: Sequence[str]) -> Iterator[tuple[str, LabelledPairs]]:
    """Yield each measure that has both labels, with its labelled pairs."""
    with tables.connect() as connection:
        connection.register("system_order", pa.table({"system": list(systems), "place": range(len(systems))}))
        rows = connection.sql(SCORED_PAIRS_SQL, params={"tenant": tenant}).to_arrow_table()
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
    """Compute the influence of each query's pairs on the pooled AUC, shape (n_queries,); sums to 0.

    Args:
        labels: whether each pair is positive, shape (n_pairs,); both labels must occur.
        scores: score of each pair, shape (n_pairs,); NaN (no score) ranks below any score.
        query: query index of each pair, from 0, shape (n_pairs,).

    Source: Obuchowski 1997, Nonparametric analysis of clustered ROC curve data.
    """
    ranked = np.where(np.isnan(scores), -np.inf, scores)
    positive_scores = np.sort(ranked[labels])
    negative_scores = np.sort(ranked[~labels])
    # Counts with ties on either side; their mean counts a tie as one half.
    negatives_below = [np.searchsorted(negative_scores, ranked[labels], side) for side in ("left", "right")]
    positives_above = [
        len(positive_scores) - np.searchsorted(positive_scores, ranked[~labels], side) for side in ("left", "right")
    ]
    pair_auc = np.empty(len(labels))
    pair_auc[labels] = (negatives_below[0] + negatives_below[1]) / 2 / len(negative_scores)
    pair_auc[~labels] = (positives_above[0] + positives_above[1]) / 2 / len(positive_scores)
    pair_auc -= pair_auc[labels].mean()
    return np.asarray(
        np.bincount(query, pair_auc / np.where(labels, len(positive_scores), len(negative_scores))), np.float64
    )


def rank_swap_p(
    labels: NDArray[np.bool_], scores: Floats, query: NDArray[np.int64], chance: ResamplingSettings
) -> float:
    """Compute the two-sided p-value of the difference of two AUCs under random swaps of the systems within queries.

    Args:
        labels: whether each pair is positive, shape (n_pairs,); both labels must occur.
        scores: scores of the two systems, shape (n_pairs, 2); NaN (no score) ranks below any score.
        query: query index of each pair, from 0, shape (n_pairs,).
        chance: number of permutations and seed.

    Source: Venkatraman and Begg 1996, A distribution-free procedure for comparing receiver operating characteristic
    curves from a paired experiment (ranks are swapped, because scores of two systems have different units).
    """
    ranks_a, ranks_b = (_double_ranks(system_scores) for system_scores in scores.T)
    observed = abs(_areas_of_ranks(labels, ranks_a[None]) - _areas_of_ranks(labels, ranks_b[None]))
    threshold = observed - 1e-12  # a permutation with the same difference counts, in spite of rounding

    def reaches(bits: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Whether each permutation, given as a bit per query, reaches the observed difference."""
        reached_by_batch = []
        n_batches = -(-len(bits) * len(labels) // _RANKS_AT_ONCE)  # rounded up
        for batch in np.array_split(bits, n_batches):
            is_swapped = batch[:, query].astype(bool)
            areas_a = _areas_of_ranks(labels, np.where(is_swapped, ranks_b, ranks_a))
            areas_b = _areas_of_ranks(labels, np.where(is_swapped, ranks_a, ranks_b))
            reached_by_batch.append(np.abs(areas_a - areas_b) >= threshold)
        return np.concatenate(reached_by_batch)

    return float(rotation_p(int(query.max()) + 1, reaches, chance))


def _double_ranks(scores: Floats) -> NDArray[np.int64]:
    """Compute twice the ascending ranks of scores; doubled, because ties get their mean rank, which may end in .5."""
    _, rank_index, counts = np.unique(
        np.where(np.isnan(scores), -np.inf, scores), return_inverse=True, return_counts=True
    )
    return np.asarray((2 * np.cumsum(counts) - counts + 1)[rank_index], np.int64)


def _areas_of_ranks(labels: NDArray[np.bool_], ranks: NDArray[np.int64]) -> Floats:
    """Compute `area` for each row of ranks, in time linear in the number of ranks; returns shape (n_rows,).

    Args:
        labels: whether each pair is positive, shape (n_pairs,).
        ranks: doubled ranks of `_double_ranks`, shape (n_rows, n_pairs).
    """
    n_rows = len(ranks)
    width = 2 * len(labels) + 1  # number of values that a doubled rank can have, with 0
    flat_ranks = ranks + width * np.arange(n_rows)[:, None]
    negatives_at_rank = np.bincount(flat_ranks[:, ~labels].ravel(), minlength=n_rows * width).reshape(n_rows, width)
    negatives_below = np.cumsum(negatives_at_rank, axis=1) - negatives_at_rank / 2
    return np.asarray(negatives_below.ravel()[flat_ranks[:, labels]].mean(axis=1) / (~labels).sum())


def _drawn_queries(n: int, chance: ResamplingSettings) -> NDArray[np.uint16]:
    """Draw bootstrap resamples: how often each query is drawn in each, shape (n_resamples, n)."""
    random = np.random.default_rng(chance.seed)
    counts = np.empty((chance.resamples, n), np.uint16)  # a quarter of the memory of int64
    for row in counts:
        row[:] = random.multinomial(n, np.full(n, 1 / n))
    return counts
