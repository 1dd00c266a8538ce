"""Which pairs people should label.

Samples of pairs drawn as by `darklode review`, with recorded verdicts of LLM judges and people's recorded labels as the
reviewers'. Every figure is estimated by prediction-powered inference from the sample and the judge. Random: a simple
random sample of all pairs. Labels needed: (half width ÷ half width of the random sample)², the share of a random
sample's labels that give the same 95 % interval; half widths are medians over samples. Coverage: share of the intervals
that hold the figure by people's labels. Unknown: share of the samples with too few labels that matter to the figure.

- llm-judges: every eighth of the 33 judges. There are no texts, so the "retrievers" are rankings by the mean grade of
  three other judges.
- trec-dl-2019: two of the six runs; seven embedded retrievers make the best ranks, two of them are measured. The
  influence of a pair below rank 10 was chosen on the topics with even numbers; figures are of the others.

The verdicts have grades, but no probabilities: a sample by priority assumes .7 of the judge's positives and .1 of the
other pairs to be relevant. All queries are sampled from.

With ten samples for each judge, coverage is known to within 4 points. Takes two minutes.

    python -m benchmarks.review_sampling [--quick] [--collections FOLDER]
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.collections_io import Collection, existing, options, read_jsonl, read_qrels
from benchmarks.estimates import linear_measure
from benchmarks.quality import rank
from benchmarks.report import ResultTable, publish
from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.base.measure_influence import measure_influence
from darklode.pipeline.base.prediction_powered import (
    CorrectedEstimate,
    LabelSample,
    calibrate,
    correct_mean,
    correct_ratio,
)
from darklode.pipeline.validate.purposes import TABLES_READ, Purpose
from darklode.pipeline.validate.sample import REVIEW_SAMPLE_STAGE, review_sample
from darklode.schemas.label_tables import VERDICTS
from darklode.schemas.settings import ReviewSettings
from darklode.schemas.tables import POOL, TABLES

SIZES, REPETITIONS, QUICK_REPETITIONS = (100, 300), 10, 3
EVERY = 8  # judge of llm-judges
RANDOM = "random"
DESIGNS: tuple[str, ...] = (RANDOM, "validate", "evaluate")
GRADE_SCORES = np.array([-2.0, -0.7, 0.7, 2.0])
SYSTEMS = ("ppmi_feedback", "bm25")
RELEVANT_FROM, MEASURE = 2, "nDCG@10"
FIGURES = ("share relevant", "precision", "recall", MEASURE)
TENANT = "a"

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedPairs:
    """Pairs with labels by people and one judge, by query; arrays of shape (n_pairs,).

    Attributes:
        query: query of each pair, from 0, sorted.
        relevant: 1 if relevant to people, else 0.
        grade: the judge's, 0 to 3.
        best_rank: best rank by any retriever; 0: in no list.
        ranks: rank by each measured system; 0: not ranked.
    """

    query: Ints
    relevant: Floats
    grade: Ints
    best_rank: Ints
    ranks: tuple[Ints, ...]

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return int(self.query.max()) + 1


def llm_judges(folder: Path) -> list[JudgedPairs]:
    """Every eighth judge of llm-judges."""
    lines = existing(folder / "labels.tsv").read_text(encoding="utf-8").splitlines()
    _, *rows = [line.split("\t") for line in lines]
    rows.sort()
    query = np.unique([row[0] for row in rows], return_inverse=True)[1]
    grades = np.clip([[int(float(grade or 0)) for grade in row[2:]] for row in rows], 0, 3)
    random = np.random.default_rng(5)
    parts = []
    for judge in range(1, grades.shape[1], EVERY):
        other_judges = [other for other in range(1, grades.shape[1]) if other != judge]
        ranks = [
            _ranks(query, grades[:, random.choice(other_judges, 3, replace=False)].mean(axis=1), random) for _ in "ab"
        ]
        relevant = (grades[:, 0] >= RELEVANT_FROM).astype(np.float64)
        parts.append(JudgedPairs(query, relevant, grades[:, judge], np.minimum(*ranks), tuple(ranks)))
    return parts


def _ranks(query: Ints, score: Floats, random: np.random.Generator) -> Ints:
    """Rank of each pair within its query, highest score first, ties at random."""
    order = np.lexsort((random.random(len(score)), -score, query))
    ranks = np.empty(len(score), np.int64)
    ranks[order] = np.arange(len(score)) - np.searchsorted(query, query)[order] + 1
    return ranks


def trec_dl_2019(folder: Path, topics: slice) -> list[JudgedPairs]:
    """Two runs of trec-dl-2019 on a part of the topics."""
    documents = {row["_id"]: row["text"] for row in read_jsonl(folder / "corpus.jsonl")}
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    people = {(query, document): grade for query, document, grade in read_qrels(folder / "qrels" / "test.tsv")}
    names, *rows = [line.split("\t") for line in existing(folder / "llm_judgments.tsv").read_text().splitlines()]
    rows = sorted(row for row in rows if (row[0], row[1]) in people)
    topic_ids = sorted({row[0] for row in rows})[topics]
    rows = [row for row in rows if row[0] in set(topic_ids)]
    query = np.searchsorted(topic_ids, [row[0] for row in rows])
    row_of = {document: number for number, document in enumerate(documents)}
    column = np.array([row_of[row[1]] for row in rows])
    chunks = [f"\n\n{text}" for text in documents.values()]
    collection = Collection("", chunks, np.arange(len(chunks)), [texts[topic] for topic in topic_ids], [])
    ranks = {name: _positions(lists, len(chunks))[query, column] for name, lists in rank(collection).items()}
    listed = np.stack([np.where(own > 0, own, np.iinfo(np.int64).max) for own in ranks.values()]).min(axis=0)
    best_rank = np.where(listed < np.iinfo(np.int64).max, listed, 0)
    relevant = np.array([float(people[row[0], row[1]] >= RELEVANT_FROM) for row in rows])
    judges = [names.index(name) for name in ("run1_aggregate", "run3_four_prompts")]
    grades = [np.array([int(float(row[judge] or 0)) for row in rows]) for judge in judges]
    return [JudgedPairs(query, relevant, grade, best_rank, tuple(ranks[name] for name in SYSTEMS)) for grade in grades]


def _positions(lists: Ints, n_chunks: int) -> Ints:
    """Rank of each chunk for each query, 0 if not ranked, shape (n_queries, n_chunks)."""
    positions = np.zeros((len(lists), n_chunks), np.int64)
    for number, ranked in enumerate(lists):
        positions[number, ranked[ranked >= 0]] = np.arange(np.count_nonzero(ranked >= 0)) + 1
    return positions


def put_pairs(run: Run, pairs: JudgedPairs) -> None:
    """Write the tables that sampling reads."""
    n = len(pairs.query)
    keys = {
        "tenant": [TENANT] * n,
        "query_id": [f"q{query:05d}" for query in pairs.query],
        "chunk_id": [f"c{row:06d}" for row in range(n)],
    }
    best_rank = pa.array(pairs.best_rank, mask=pairs.best_rank == 0).cast(pa.int32())
    pool = POOL.rows(keys | {"retrievers": [["all"]] * n, "best_rank": best_rank, "fused_score": [0.0] * n})
    verdicts = VERDICTS.rows(keys | {"judge_id": ["judge"] * n, "relevant": pairs.grade >= RELEVANT_FROM})
    names = sorted(set(keys["query_id"]))
    queries = {"tenant": [TENANT] * len(names), "query_id": names, "split": ["test"] * len(names)}
    held_out = TABLES["held_out"].rows(queries | {"shares_positive": [False] * len(names)})
    tables = {"pool": pool, "verdicts": verdicts, "held_out": held_out}
    for table, rows in tables.items():
        stage = Stage(table, 1, (), (table,))
        run.execute(run.plan(stage, {}), lambda _, output, name=table, rows=rows: output.write(name, rows))  # type: ignore[misc]


def draw(run: Run, pairs: JudgedPairs, design: str, size: int, seed: int) -> LabelSample:
    """Labels of a sample."""
    n = len(pairs.query)
    label, weight, stratum = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.int64)
    if design == RANDOM:
        drawn = np.random.default_rng([size, seed]).permutation(n)[:size]
        weight[drawn] = n / size
    else:
        purpose: Purpose = "evaluate" if design == "evaluate" else "validate"
        settings = ReviewSettings(query_share=1.0, max_pairs=size)
        reads = (*REVIEW_SAMPLE_STAGE.reads, *TABLES_READ[purpose])
        stage = Stage(REVIEW_SAMPLE_STAGE.name, 1, reads, REVIEW_SAMPLE_STAGE.writes)
        plan = run.plan(stage, {"purpose": purpose, "size": size, "seed": seed})
        run.execute(plan, lambda tables, output: review_sample(tables, output, settings, seed=seed, purpose=purpose))
        rows = run.tables("review_sample").read("review_sample")
        drawn = np.array([int(chunk_id[1:]) for chunk_id in rows["chunk_id"].to_pylist()])
        weight[drawn] = rows["weight"].to_numpy()
        stratum[drawn] = np.unique(rows["stratum"].to_pylist(), return_inverse=True)[1]
    label[drawn] = pairs.relevant[drawn]
    return LabelSample(pairs.query, label, weight, stratum, np.arange(pairs.n_queries))


def estimates(pairs: JudgedPairs, sample: LabelSample, seed: int) -> dict[str, list[CorrectedEstimate]]:
    """Estimates by figure; of the measure for each system."""
    is_positive = (pairs.grade >= RELEVANT_FROM).astype(np.float64)
    ones = np.ones(len(is_positive))
    calibration = calibrate(sample, GRADE_SCORES[pairs.grade], seed)
    labels = calibration.labels(sample)
    measures = [measure_influence(MEASURE, ranks, labels) for ranks in pairs.ranks]
    return {
        "share relevant": [
            correct_mean(sample, calibration, linear_measure(sample, calibration, ones / len(is_positive)))
        ],
        "precision": [
            correct_mean(sample, calibration, linear_measure(sample, calibration, is_positive / is_positive.sum()))
        ],
        "recall": [correct_ratio(sample, calibration, is_positive, ones)],
        MEASURE: [correct_mean(sample, calibration, measure) for measure in measures],
    }


def true_figures(pairs: JudgedPairs) -> dict[str, list[float]]:
    """The figures by people's labels of all pairs."""
    is_positive = pairs.grade >= RELEVANT_FROM
    hits = float(pairs.relevant[is_positive].sum())
    return {
        "share relevant": [float(pairs.relevant.mean())],
        "precision": [hits / int(is_positive.sum())],
        "recall": [hits / float(pairs.relevant.sum())],
        MEASURE: [_ndcg(pairs, ranks) for ranks in pairs.ranks],
    }


def _ndcg(pairs: JudgedPairs, ranks: Ints) -> float:
    """Mean nDCG@10 by people's labels."""
    discount = 1 / np.log2(np.arange(10) + 2.0)
    gain = np.where((ranks > 0) & (ranks <= 10), discount[np.clip(ranks, 1, 10) - 1], 0.0) * pairs.relevant
    ideal = np.concatenate([[0.0], np.cumsum(discount)])
    n_relevant = np.bincount(pairs.query, pairs.relevant).astype(np.int64)
    ideal_gain = ideal[np.minimum(n_relevant, 10)]
    gains = np.bincount(pairs.query, gain)
    return float(np.divide(gains, ideal_gain, out=np.zeros(len(gains)), where=ideal_gain > 0).mean())


Outcome = tuple[float, CorrectedEstimate]
"""The true figure, and its estimate."""


def collect(parts: list[JudgedPairs], repetitions: int) -> dict[tuple[str, int, str], list[Outcome]]:
    """Outcomes by figure, size and design, over judges and samples."""
    outcomes: dict[tuple[str, int, str], list[Outcome]] = {}
    for pairs in parts:
        truth = true_figures(pairs)
        with tempfile.TemporaryDirectory() as folder:
            run = Run(folder)
            put_pairs(run, pairs)
            for size in SIZES:
                for design in DESIGNS:
                    for seed in range(repetitions):
                        estimated = estimates(pairs, draw(run, pairs, design, size, seed), seed)
                        for figure, values in estimated.items():
                            outcomes.setdefault((figure, size, design), []).extend(
                                zip(truth[figure], values, strict=True)
                            )
    return outcomes


def table_rows(name: str, outcomes: Mapping[tuple[str, int, str], list[Outcome]]) -> list[list[object]]:
    """Rows by figure, number of labels and design."""
    rows: list[list[object]] = []
    for figure in FIGURES:
        for size in SIZES:
            random_width = _half_width(outcomes[figure, size, RANDOM])
            for design in DESIGNS:
                own = outcomes[figure, size, design]
                outcomes_known = [(truth, value) for truth, value in own if np.isfinite(value.value)]
                covered = float(np.mean([value.low <= truth <= value.high for truth, value in outcomes_known]))
                width, unknown = _half_width(own), 1 - len(outcomes_known) / len(own)
                rows.append([name, figure, size, design, width, (width / random_width) ** 2, covered, unknown])
    return rows


def _half_width(outcomes: list[Outcome]) -> float:
    widths = [(value.high - value.low) / 2 for _, value in outcomes if np.isfinite(value.value)]
    return float(np.median(widths)) if widths else float("nan")


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__, ("llm-judges", "trec-dl-2019")).parse_args()
    repetitions = QUICK_REPETITIONS if arguments.quick else REPETITIONS
    root = arguments.collections
    collections = {
        "llm-judges": llm_judges(root / "llm-judges")[: 2 if arguments.quick else None],
        "trec-dl-2019": trec_dl_2019(root / "trec-dl-2019", slice(1, None, 2)),
    }
    rows = []
    for name, parts in collections.items():
        rows += table_rows(name, collect(parts, repetitions))
    columns = {"collection": "", "figure": "", "labels": "", "sample": "", "half width": ".3f"}
    columns |= {"labels needed": ".0%", "coverage": ".0%", "unknown": ".0%"}
    note = f"{repetitions} samples for each judge; of {MEASURE} for each of two systems."
    publish("review_sampling", [ResultTable("Intervals by sample", columns, rows, note)], quick=arguments.quick)


if __name__ == "__main__":
    main()
