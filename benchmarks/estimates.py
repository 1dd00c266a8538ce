"""Estimates corrected by people's labels.

Coverage and width of 95 % intervals in simulation: people label a random sample of recorded pairs, and the figure over
all pairs is estimated from the sample and the verdicts of a recorded LLM judge. Corrected: by prediction-powered
inference, as in the reports. People only: the same estimator without the judge. Judge only: the figure that the judge's
labels give, and how far it is from the truth. Coverage counts the intervals that hold the figure by people's labels.

- Share of relevant pairs, and the judge's precision and recall: 33 judges of llm-judges, samples drawn as by
  `review`. Beta-binomial: the stratified posterior (Webber 2013).
- nDCG@10, the difference of nDCG@10 between two embedded retrievers, and recall in the first 50 results of the relevant
  pairs of all queries together: two judges of trec-dl-2019, every other topic. Sample for the judge's quality: as drawn
  by `review`. Sample for the measure: pairs are drawn in proportion to their influence on nDCG@10 and the uncertainty
  of the judge's grade.

- Fitted probabilities: their mean over all pairs of llm-judges minus the share of relevant pairs, where the labels of a
  review sample are used with and without their weights.

Unknown: share of the samples with too few labels that matter to the figure; coverage and widths are of the others. The
estimator's constants were set before this measurement and not fitted to it. Widths are half of the interval, medians.
Left out: several tenants, samples of only a part of the queries, grades as gains, and people who err.

    python -m benchmarks.estimates [--quick] [--collections FOLDER]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.collections_io import Collection, existing, options, read_jsonl, read_qrels
from benchmarks.quality import rank
from benchmarks.report import ResultTable, publish
from darklode.pipeline.base.measure_influence import ExpectedMeasure, UncertainLabels, measure_influence
from darklode.pipeline.base.prediction_powered import (
    Calibration,
    CorrectedEstimate,
    LabelSample,
    calibrate,
    correct_mean,
    correct_ratio,
)
from darklode.pipeline.judge.calibration import fit_probabilities
from darklode.pipeline.judge.human_labels import sampling_weights
from darklode.pipeline.judge.logistic import log_odds
from darklode.pipeline.validate.estimates import LabelledStrata, estimate
from darklode.pipeline.validate.strata import Cells, stratify

SIZES = (30, 100, 300)
REPETITIONS = {"judge": 20, "ranking": 100}
"""Samples per judge and size; 33 judges make 660, and two judges of rankings 200."""
RANKING_JUDGES = ("run1_aggregate", "run3_four_prompts")
SYSTEMS = ("ppmi_feedback", "bm25")
RECALL_DEPTH = 50
GRADE_SCORES = np.array([-2.0, -0.7, 0.7, 2.0])
PLANNED_PROBABILITIES = np.array([0.05, 0.2, 0.45, 0.75])
"""Of the grades, before any label is known; they decide which pairs are sampled, not what is estimated."""
UNIFORM_SHARE = 0.2  # of the sample for the measure: every pair has a chance

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RecordedPairs:
    """Pairs with grades by people and judges, by query; arrays of shape (n_pairs,).

    Attributes:
        query: query of each pair, from 0.
        relevant: 1 if people's grade is at least 2, else 0.
        grades: grades of each judge, 0 to 3.
        ranks: rank of the pair in each system's ranking; 0: not ranked.
    """

    query: Ints
    relevant: Floats
    grades: Mapping[str, Ints]
    ranks: Mapping[str, Ints]

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return int(self.query.max()) + 1


def read_judges(folder: Path) -> RecordedPairs:
    """The pairs of llm-judges; a missing grade counts as 0, one above 3 as 3."""
    lines = existing(folder / "labels.tsv").read_text(encoding="utf-8").splitlines()
    names, *rows = [line.split("\t") for line in lines]
    rows.sort()
    query = np.unique([row[0] for row in rows], return_inverse=True)[1]
    grades = np.clip([[int(float(grade or 0)) for grade in row[2:]] for row in rows], 0, 3)
    judges = {name: grades[:, column] for column, name in enumerate(names[3:], 1)}
    return RecordedPairs(query, (grades[:, 0] >= 2).astype(float), judges, {})


def read_rankings(folder: Path, topics: slice) -> RecordedPairs:
    """The judged pairs of a part of the topics of trec-dl-2019, and the rankings of the embedded retrievers."""
    documents = {row["_id"]: row["text"] for row in read_jsonl(folder / "corpus.jsonl")}
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    people = {(query, document): grade for query, document, grade in read_qrels(folder / "qrels" / "test.tsv")}
    lines = existing(folder / "llm_judgments.tsv").read_text(encoding="utf-8").splitlines()
    names, *rows = [line.split("\t") for line in lines]
    rows = sorted(row for row in rows if (row[0], row[1]) in people)
    topic_ids = sorted({row[0] for row in rows})[topics]
    rows = [row for row in rows if row[0] in set(topic_ids)]
    query = np.searchsorted(topic_ids, [row[0] for row in rows])
    row_of = {document: row for row, document in enumerate(documents)}
    chunks = ["\n\n" + text for text in documents.values()]
    collection = Collection("", chunks, np.arange(len(chunks)), [texts[topic] for topic in topic_ids], [])
    ranks = {}
    for system, lists in rank(collection).items():
        position = np.zeros((len(topic_ids), len(chunks)), np.int64)
        for number, ranked in enumerate(lists):
            position[number, ranked[ranked >= 0]] = np.arange(np.count_nonzero(ranked >= 0)) + 1
        ranks[system] = position[query, [row_of[row[1]] for row in rows]]
    grades = np.array([[int(float(grade)) if grade else 0 for grade in row[2:]] for row in rows])
    judges = {name: grades[:, column] for column, name in enumerate(names[2:])}
    relevant = np.array([float(people[row[0], row[1]] >= 2) for row in rows])
    return RecordedPairs(query, relevant, judges, ranks)


def review_plan(grade: Ints, size: int) -> tuple[Ints, Ints]:
    """Stratum of each pair, and sample size of each stratum, as of the review sample."""
    permille = np.round(1000 * grade / 3).astype(np.int64)
    values, cell = np.unique(np.stack([(grade < 2).astype(np.int64), permille]), axis=1, return_inverse=True)
    counts, zeros = np.bincount(cell), np.zeros(values.shape[1], np.int64)
    strata = stratify(Cells(zeros, values[0], zeros, values[1], counts, counts), size)
    stratum = np.empty(len(grade), np.int64)
    for number, part in enumerate(strata):
        stratum[np.isin(cell, part.cells)] = number
    return stratum, np.array([part.sampled for part in strata])


def draw_review(pairs: RecordedPairs, plan: tuple[Ints, Ints], random: np.random.Generator) -> LabelSample:
    """Labels of a stratified sample."""
    stratum, sizes = plan
    label, weight = np.full(len(stratum), np.nan), np.full(len(stratum), np.nan)
    for number, size in enumerate(sizes):
        rows = np.flatnonzero(stratum == number)
        drawn = random.permutation(rows)[:size]
        label[drawn], weight[drawn] = pairs.relevant[drawn], len(rows) / max(size, 1)
    return LabelSample(pairs.query, label, weight, stratum, np.arange(pairs.n_queries))


def inclusion(pairs: RecordedPairs, grade: Ints, size: int) -> Floats:
    """Probability that each pair is labelled, by its influence on nDCG@10 of both systems."""
    probability = PLANNED_PROBABILITIES[grade]
    planned = UncertainLabels(pairs.query, probability, pairs.n_queries)
    influences = [measure_influence("nDCG@10", pairs.ranks[name], planned).influence for name in SYSTEMS]
    shares = np.linalg.norm(influences, axis=0) * np.sqrt(probability * (1 - probability))
    shares = (1 - UNIFORM_SHARE) * shares / shares.sum() + UNIFORM_SHARE / len(shares)
    chosen = np.minimum(1.0, size * shares)
    for _ in range(50):
        is_free = chosen < 1
        chosen[is_free] = np.minimum(1.0, shares[is_free] * (size - (~is_free).sum()) / shares[is_free].sum())
    return np.asarray(chosen, np.float64)


def draw_by_inclusion(pairs: RecordedPairs, chosen: Floats, random: np.random.Generator) -> LabelSample:
    """Labels of a systematic sample of the pairs in random order."""
    order = random.permutation(len(chosen))
    edges = np.concatenate([[0.0], np.cumsum(chosen[order])]) + random.random()
    drawn = order[np.diff(np.floor(edges)) > 0]
    label, weight = np.full(len(chosen), np.nan), np.full(len(chosen), np.nan)
    label[drawn], weight[drawn] = pairs.relevant[drawn], 1 / chosen[drawn]
    return LabelSample(pairs.query, label, weight, np.zeros(len(chosen), np.int64), np.arange(pairs.n_queries))


def without_judge(calibration: Calibration) -> Calibration:
    """The same, with the people's mean as the probability of every pair."""
    return replace(calibration, probability=calibration.base)


def quality_estimates(sample: LabelSample, calibration: Calibration, found: Floats) -> dict[str, CorrectedEstimate]:
    """Share relevant, and precision and recall of the judge's positives."""
    ones = np.ones(len(found))
    return {
        "share relevant": correct_mean(sample, calibration, linear_measure(sample, calibration, ones / len(found))),
        "precision": correct_mean(sample, calibration, linear_measure(sample, calibration, found / found.sum())),
        "recall": correct_ratio(sample, calibration, found, ones),
    }


def linear_measure(sample: LabelSample, calibration: Calibration, gain: Floats) -> ExpectedMeasure:
    """The sum of `gain` over all relevant pairs, as a mean over queries."""
    n = sample.n_queries
    expected = np.bincount(sample.query, gain * calibration.probability, minlength=n)
    return ExpectedMeasure(np.asarray(n * expected, np.float64), n * gain)


def beta_binomial(sample: LabelSample, found: Floats, random: np.random.Generator) -> dict[str, CorrectedEstimate]:
    """Precision and recall by the stratified posterior."""
    n_strata, n_queries = int(sample.stratum.max()) + 1, sample.n_queries
    labelled = sample.is_labelled
    cell = sample.query[labelled] * n_strata + sample.stratum[labelled]
    counts = np.bincount(cell, minlength=n_queries * n_strata).reshape(n_queries, n_strata)
    relevant = np.bincount(cell, sample.label[labelled], minlength=n_queries * n_strata).reshape(counts.shape)
    is_found = np.bincount(sample.stratum, found, minlength=n_strata) > 0
    strata = LabelledStrata(np.bincount(sample.stratum), is_found, counts, relevant.astype(np.int64))
    estimates = estimate(strata, 1.0, random, draws=2000)
    n = int(labelled.sum())
    return {
        name: CorrectedEstimate(part.value, part.low, part.high, n, n, n_queries)
        for name, part in (("precision", estimates.precision), ("recall", estimates.recall))
    }


Outcome = tuple[float, CorrectedEstimate]
"""The true figure, and its estimate."""


def quality_rows(pairs: RecordedPairs, repetitions: int) -> list[list[object]]:
    """Rows of the table of judges' figures."""
    outcomes: dict[tuple[str, int, str], list[Outcome]] = {}
    gaps: dict[str, list[float]] = {}
    for judge, grade in pairs.grades.items():
        found = (grade >= 2).astype(float)
        hits = float(found @ pairs.relevant)
        truth = {
            "share relevant": float(pairs.relevant.mean()),
            "precision": hits / max(float(found.sum()), 1.0),
            "recall": hits / float(pairs.relevant.sum()),
        }
        gaps.setdefault("share relevant", []).append(float(found.mean()) - truth["share relevant"])
        for size in SIZES:
            plan = review_plan(grade, size)
            for repetition in range(repetitions):
                random = np.random.default_rng([size, repetition, list(pairs.grades).index(judge)])
                sample = draw_review(pairs, plan, random)
                calibration = calibrate(sample, GRADE_SCORES[grade], repetition)
                by_method = {
                    "corrected": quality_estimates(sample, calibration, found),
                    "people only": quality_estimates(sample, without_judge(calibration), found),
                    "beta-binomial": beta_binomial(sample, found, random),
                }
                for method, estimates in by_method.items():
                    for figure, value in estimates.items():
                        outcomes.setdefault((figure, size, method), []).append((truth[figure], value))
    return [[*key, *summary(values), _gap(gaps, key[0])] for key, values in sorted(outcomes.items())]


def probability_rows(pairs: RecordedPairs, repetitions: int) -> list[list[object]]:
    """Mean and mean absolute error of the mean fitted probability, by labels and use of weights."""
    errors: dict[tuple[int, str], list[float]] = {}
    for number, grade in enumerate(pairs.grades.values()):
        score = expit(GRADE_SCORES[grade]).astype(np.float32)
        for size in SIZES[1:]:
            plan = review_plan(grade, size)
            for repetition in range(repetitions):
                sample = draw_review(pairs, plan, np.random.default_rng([size, repetition, number]))
                rows = sample.is_labelled
                weight = sampling_weights(pa.table({"weight": sample.weight[rows]}))
                for method, weights in (("with weights", weight), ("without weights", None)):
                    slope, intercept = fit_probabilities(score[rows], sample.label[rows] > 0, weights)
                    if slope is None or intercept is None:
                        continue
                    mean = float(expit(slope * log_odds(score) + intercept).mean())
                    errors.setdefault((size, method), []).append(mean - float(pairs.relevant.mean()))
    return [
        [*key, len(values), float(np.mean(values)), float(np.abs(values).mean())]
        for key, values in sorted(errors.items())
    ]


def ranking_rows(pairs: RecordedPairs, repetitions: int) -> list[list[object]]:
    """Rows of the table of ranking measures."""
    outcomes: dict[tuple[str, str, int, str], list[Outcome]] = {}
    gaps: dict[str, list[float]] = {}
    truth = _ranking_values(pairs, pairs.relevant)
    for judge in RANKING_JUDGES:
        grade = pairs.grades[judge]
        for figure, by_judge in _ranking_values(pairs, (grade >= 2).astype(float)).items():
            gaps.setdefault(figure, []).append(by_judge - truth[figure])
        for size in SIZES:
            plan, chosen = review_plan(grade, size), inclusion(pairs, grade, size)
            for repetition in range(repetitions):
                random = np.random.default_rng([size, repetition])
                samples = {
                    "the judge's quality": draw_review(pairs, plan, random),
                    "the measure": draw_by_inclusion(pairs, chosen, random),
                }
                for design, sample in samples.items():
                    calibration = calibrate(sample, GRADE_SCORES[grade], repetition)
                    parts = {"corrected": calibration, "people only": without_judge(calibration)}
                    for method, part in parts.items():
                        for figure, value in ranking_estimates(pairs, sample, part).items():
                            key = (figure, design, size, method)
                            outcomes.setdefault(key, []).append((truth[figure], value))
    return [[*key, *summary(values), _gap(gaps, key[0])] for key, values in sorted(outcomes.items())]


def ranking_estimates(
    pairs: RecordedPairs, sample: LabelSample, calibration: Calibration
) -> dict[str, CorrectedEstimate]:
    """Estimates of the first system's measures, and of the difference of both."""
    labels, (first, other) = calibration.labels(sample), (pairs.ranks[name] for name in SYSTEMS)
    ndcg, other_ndcg = (measure_influence("nDCG@10", ranks, labels) for ranks in (first, other))
    in_top = ((first > 0) & (first <= RECALL_DEPTH)).astype(float)
    return {
        "nDCG@10": correct_mean(sample, calibration, ndcg),
        "recall, pooled": correct_ratio(sample, calibration, in_top, np.ones(len(in_top))),
        "difference of nDCG@10": correct_mean(sample, calibration, ndcg - other_ndcg, (-1.0, 1.0)),
    }


def _ranking_values(pairs: RecordedPairs, relevant: Floats) -> dict[str, float]:
    """The figures by given labels."""
    labels, (first, other) = (
        UncertainLabels(pairs.query, relevant, pairs.n_queries),
        (pairs.ranks[name] for name in SYSTEMS),
    )
    ndcg, other_ndcg = (float(measure_influence("nDCG@10", ranks, labels).expected.mean()) for ranks in (first, other))
    recall = float(relevant[(first > 0) & (first <= RECALL_DEPTH)].sum() / relevant.sum())
    return {"nDCG@10": ndcg, "recall, pooled": recall, "difference of nDCG@10": ndcg - other_ndcg}


def _gap(gaps: Mapping[str, Sequence[float]], figure: str) -> float | None:
    """Mean difference of the judge-only figure from the truth."""
    return float(np.mean(gaps[figure])) if figure in gaps else None


def summary(outcomes: Iterable[Outcome]) -> list[object]:
    """Number of samples, share of unknown estimates, coverage, half of the width, bias."""
    values = np.array([(truth, part.value, part.low, part.high) for truth, part in outcomes])
    is_known = np.isfinite(values).all(axis=1)
    truth, value, low, high = values[is_known].T
    if not is_known.any():
        return [len(values), 1.0, None, None, None]
    coverage = float(((low <= truth + 1e-9) & (truth <= high + 1e-9)).mean())
    half = float(np.median((high - low) / 2))
    return [len(values), float(1 - is_known.mean()), coverage, half, float((value - truth).mean())]


FIGURE_COLUMNS = {
    "samples": ",",
    "unknown": ".0%",
    "coverage": ".1%",
    "half width": ".3f",
    "bias": "+.3f",
    "judge only": "+.3f",
}


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__, ()).parse_args()
    root = arguments.collections
    judge, ranking = (max(count // 10, 2) if arguments.quick else count for count in REPETITIONS.values())
    rankings = read_rankings(root / "trec-dl-2019", slice(0, None, 2))
    tables = [
        ResultTable(
            "Figures of the judge (llm-judges, 33 judges)",
            {"figure": "", "labels": "", "method": ""} | FIGURE_COLUMNS,
            quality_rows(read_judges(root / "llm-judges"), judge),
            "Judge only: mean difference of the judge's share of relevant pairs from the true one.",
        ),
        ResultTable(
            "Mean fitted probability (llm-judges, 33 judges)",
            {"labels": "", "fit": "", "samples": ",", "bias": "+.3f", "mean absolute error": ".3f"},
            probability_rows(read_judges(root / "llm-judges"), judge),
            "Samples where the probabilities do not rise with the judge's grade are left out.",
        ),
        ResultTable(
            f"Ranking measures (trec-dl-2019, {rankings.n_queries} topics, {SYSTEMS[0]} and {SYSTEMS[1]})",
            {"figure": "", "sample for": "", "labels": "", "method": ""} | FIGURE_COLUMNS,
            ranking_rows(rankings, ranking),
            "Judge only: mean difference of the figure by the judges' labels from the true one.",
        ),
    ]
    publish("estimates", tables, quick=arguments.quick)


if __name__ == "__main__":
    main()
