"""Distilling a judge.

A small judge trained on an LLM's recorded verdicts (trec-dl-2019, 43 queries, column run1_aggregate; relevant: grade 2
and more), as `judge distil` does: grades as soft targets, split by query, three folds. No real cross-encoder's weights
are at hand: the base is all-MiniLM-L6-v2, a bi-encoder that gets a new head, trained for 120 steps of 16 pairs of 64
tokens, which says how such a short training does, not what a cross-encoder reaches. "Uniform" trains on uniform draws
instead of hard cases oversampled. Baselines are scores without training. All are calibrated, and their thresholds
fitted, in the same way: on other test queries, to the teacher's labels or to people's. Kappa with 95 % bootstrap
intervals over queries; "difference" is paired, student minus teacher. Of each test query 40 pairs are measured.

Cascade: from a certainty on, the small judge answers, and the teacher the rest. "Random" leaves the same share of pairs
to the teacher at random. The last table chooses the certainty on half of the queries and measures it on the other half.

The teacher's own speed is not recorded, so the ratio of speeds is not measured.

    python -m benchmarks.judge_distil [--quick] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.adapt import MINILM
from benchmarks.collections_io import existing, options, read_jsonl, read_qrels
from benchmarks.judge_quality import BM25, COSINE, EMBEDDED, score_pairs
from benchmarks.report import ResultTable, publish
from darklode.pipeline.base.agreement import cohens_kappa, confusion
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.reranker.distil.comparison import CERTAINTIES, HeldOutPairs, QueryBootstrap, interval
from darklode.pipeline.reranker.distil.evaluation import format_interval
from darklode.pipeline.reranker.distil.sampling import hardness, importance_draws, soft_targets
from darklode.pipeline.reranker.distil.training import TeacherValidation
from darklode.pipeline.reranker.model import InitialReranker
from darklode.pipeline.reranker.pairs import SoftPairs
from darklode.pipeline.reranker.training import train_reranker
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.schemas.reranker import RerankerSettings

COLLECTION, TEACHER, LEAST_GRADE = "trec-dl-2019", "run1_aggregate", 2
FOLDS, SEED = 3, 13
VALIDATION_QUERIES, VALIDATION_PAIRS, TEST_PAIRS = 4, 30, 40
STEPS, BATCH, TOKENS, LEARNING_RATE = 120, 16, 64, 1e-4
DEPTH = 60
TARGETS = (0.7, 0.8, 0.9)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class RecordedPairs:
    """Pairs with a recorded verdict and a label of people; arrays of shape (n_pairs,).

    Attributes:
        queries: distinct queries.
        texts: distinct texts.
        query: query row.
        text: text row.
        grade: the teacher's grade.
        people: relevant to people.
        scores: of judges without training.
    """

    queries: list[str]
    texts: list[str]
    query: Ints
    text: Ints
    grade: Floats
    people: Flags
    scores: Mapping[str, Floats]

    @property
    def teacher(self) -> Flags:
        """The teacher's labels."""
        return np.asarray(self.grade >= LEAST_GRADE)

    @property
    def target(self) -> Floats:
        """Soft targets."""
        return soft_targets(self.teacher, np.full(len(self.grade), np.nan), self.grade)


def read_pairs(folder: Path, cache: EmbeddingCache) -> RecordedPairs:
    """The judged pairs with texts."""
    documents = {row["_id"]: row["text"] for row in read_jsonl(folder / "corpus.jsonl")}
    queries = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    head, *lines = existing(folder / "llm_judgments.tsv").read_text(encoding="utf-8").splitlines()
    column = head.split("\t").index(TEACHER)
    grades = {(row[0], row[1]): int(row[column]) for row in (line.split("\t") for line in lines)}
    labels = [row for row in sorted(read_qrels(folder / "qrels" / "test.tsv")) if row[:2] in grades]
    numbers, rows = dict[str, int](), {name: row for row, name in enumerate(documents)}
    query = np.array([numbers.setdefault(name, len(numbers)) for name, *_ in labels])
    text = np.array([rows[document] for _, document, _ in labels])
    texts, people = list(documents.values()), np.array([grade >= LEAST_GRADE for *_, grade in labels])
    names = [queries[name] for name in numbers]
    scores, _ = score_pairs(names, texts, query, text, cache)
    grade = np.array([grades[row[:2]] for row in labels], np.float64)
    used = {name: scores[name] for name in (COSINE, BM25, EMBEDDED)}
    return RecordedPairs(names, texts, query, text, grade, people, used)


def take_some(pairs: RecordedPairs, queries: Ints, n: int, random: np.random.Generator) -> Ints:
    """At most `n` random pairs of each query."""
    parts = [random.permutation(np.flatnonzero(pairs.query == query))[:n] for query in queries]
    return np.sort(np.concatenate(parts))


def pool_ranks(pairs: RecordedPairs, rows: Ints) -> pa.Table:
    """Best rank of BM25 and of MiniLM among a query's pairs, and how many of the two have it within `DEPTH`."""
    ranks = []
    for name in (BM25, COSINE):
        order = np.lexsort((-pairs.scores[name], pairs.query))
        rank = np.empty(len(order), np.int64)
        starts = np.searchsorted(pairs.query[order], pairs.query[order])
        rank[order] = np.arange(len(order)) - starts + 1
        ranks.append(rank[rows])
    stacked = np.stack(ranks)
    columns = {"best_rank": stacked.min(axis=0), "n_retrievers": (stacked <= DEPTH).sum(axis=0)}
    return pa.table(columns | {"relevant": pairs.teacher[rows]})


def train_fold(pairs: RecordedPairs, training: Ints, validation: Ints, steps: int, *, uniform: bool) -> object:
    """A cross-encoder trained on some pairs."""
    target, random = pairs.target, np.random.default_rng([SEED, 31])
    hard = np.zeros(len(training)) if uniform else hardness(pool_ranks(pairs, training), target[training])
    draws, weight = importance_draws(hard, steps * BATCH, random)
    rows = np.repeat(training, draws)
    soft = SoftPairs(
        pairs.queries,
        pa.array(pairs.texts),
        pairs.query[rows],
        pairs.text[rows],
        target[rows].astype(np.float32),
        np.repeat(weight, draws).astype(np.float32),
    )
    held_out = TeacherValidation(*texts_of(pairs, validation), target[validation])
    model = MINILM.model_copy(update={"max_seq_length": TOKENS, "device": "cpu"})
    settings = RerankerSettings(max_steps=steps, batch_size=BATCH, learning_rates=(LEARNING_RATE,))
    with deterministic(SEED):
        reranker = InitialReranker(model, SEED).open()
        history = train_reranker(
            soft, held_out, reranker, settings, LEARNING_RATE, SEED, lambda *_: None, score_initial=False
        )
        reranker.restore(history.best_weights)
    return reranker


def texts_of(pairs: RecordedPairs, rows: Ints) -> tuple[list[str], list[str]]:
    """Query and text of some pairs."""
    return [pairs.queries[row] for row in pairs.query[rows]], [pairs.texts[row] for row in pairs.text[rows]]


@dataclass(frozen=True)
class FoldResult:
    """Test pairs of a fold.

    Attributes:
        rows: of the pairs.
        logits: score of each pair by judge, before calibration.
    """

    rows: Ints
    logits: Mapping[str, Floats]


STUDENT, UNIFORM = "distilled", "distilled, uniform draws"


def run_folds(pairs: RecordedPairs, steps: int, folds: int) -> tuple[list[FoldResult], float, float]:
    """Scores on the test queries of each fold, processor seconds of a training, and pairs per second."""
    random = np.random.default_rng(SEED)
    order, results = random.permutation(len(pairs.queries)), list[FoldResult]()
    seconds, scored, scoring = 0.0, 0, 0.0
    for fold in range(folds):
        test = order[np.arange(len(order)) % FOLDS == fold]
        others = np.setdiff1d(order, test, assume_unique=True)
        validation, training = others[:VALIDATION_QUERIES], others[VALIDATION_QUERIES:]
        rows = take_some(pairs, test, TEST_PAIRS, random)
        held_out = take_some(pairs, validation, VALIDATION_PAIRS, random)
        logits = {name: score[rows] for name, score in pairs.scores.items()}
        for name in (STUDENT, UNIFORM):
            began = time.process_time()
            fitted = train_fold(
                pairs, np.flatnonzero(np.isin(pairs.query, training)), held_out, steps, uniform=name == UNIFORM
            )
            middle = time.process_time()
            logits[name] = fitted.scores(*texts_of(pairs, rows))  # type: ignore[attr-defined]
            seconds, scoring, scored = (
                seconds + middle - began,
                scoring + time.process_time() - middle,
                scored + len(rows),
            )
        results.append(FoldResult(rows, logits))
    return results, seconds / (2 * folds), scored / scoring


def held_out(pairs: RecordedPairs, result: FoldResult, judge: str) -> HeldOutPairs:
    """A fold's test pairs with a judge's scores."""
    rows = result.rows
    people, ones = pairs.people[rows].astype(np.float64), np.ones(len(rows))
    query = np.unique(pairs.query[rows], return_inverse=True)[1]
    return HeldOutPairs(query, result.logits[judge], pairs.teacher[rows], people, ones)


def judge_rows(pairs: RecordedPairs, results: list[FoldResult]) -> Iterator[list[object]]:
    """Kappa of each judge with people and with the teacher."""
    rows = np.concatenate([result.rows for result in results])
    people, teacher = pairs.people[rows], pairs.teacher[rows]
    bootstrap = QueryBootstrap(pairs.query[rows], SEED)
    of_teacher = bootstrap.kappas(teacher, people)
    yield [f"teacher ({TEACHER})", "", format_interval(interval(of_teacher)), "", "", float(teacher.mean())]
    for judge in (STUDENT, UNIFORM, COSINE, BM25, EMBEDDED):
        for on_people in (False, True):
            labels = np.concatenate(
                [held_out(pairs, result, judge).cross_fitted(SEED, on_people=on_people)[1] for result in results]
            )
            kappas = bootstrap.kappas(labels, people)
            difference, agreement = interval(kappas - of_teacher), bootstrap.kappas(labels, teacher)
            fitted = "people's labels" if on_people else "the teacher's labels"
            figures = [format_interval(interval(kappas)), format_interval(difference, "+")]
            yield [judge, fitted, *figures, format_interval(interval(agreement)), float(labels.mean())]


def certainty_of(pairs: RecordedPairs, results: list[FoldResult], judge: str) -> tuple[Floats, Flags]:
    """Calibrated probability of the judge's label, and the label, of all test pairs."""
    folds = [held_out(pairs, result, judge).cross_fitted(SEED, on_people=False)[0] for result in results]
    probability = np.concatenate(folds)
    return np.maximum(probability, 1 - probability), np.asarray(probability >= 0.5)


def kappa(labels: Flags, other: Flags) -> float:
    """Cohen's kappa."""
    return float(cohens_kappa(confusion(labels, other)))


def cascade_rows(pairs: RecordedPairs, results: list[FoldResult]) -> Iterator[list[object]]:
    """What each certainty reaches, and as many pairs left to the teacher at random."""
    rows = np.concatenate([result.rows for result in results])
    people, teacher = pairs.people[rows], pairs.teacher[rows]
    certainty, small = certainty_of(pairs, results, STUDENT)
    cosine_certainty, cosine = certainty_of(pairs, results, COSINE)
    random = np.random.default_rng(SEED).random(len(rows))
    for level in CERTAINTIES:
        asked = (certainty < level) | (level == 1)
        share = float(asked.mean())
        labels = np.where(asked, teacher, small)
        at_random = np.where(random < share, teacher, small)
        nearest = np.argsort(cosine_certainty, kind="stable")[: int(asked.sum())]
        by_cosine = np.where(np.isin(np.arange(len(rows)), nearest), teacher, cosine)
        figures = [kappa(labels, teacher), kappa(at_random, teacher), kappa(by_cosine, teacher)]
        yield [level, share, float((labels == teacher).mean()), *figures, kappa(labels, people)]


def chosen_rows(pairs: RecordedPairs, results: list[FoldResult]) -> Iterator[list[object]]:
    """The certainty chosen on half of the queries, measured on the other half; mean of both directions."""
    rows = np.concatenate([result.rows for result in results])
    people, teacher, half = pairs.people[rows], pairs.teacher[rows], pairs.query[rows] % 2
    certainty, small = certainty_of(pairs, results, STUDENT)
    for target in TARGETS:
        reached = []
        for chosen_on in (0, 1):
            here, there = half == chosen_on, half != chosen_on
            level = next(
                (
                    level
                    for level in CERTAINTIES[:-1]
                    if kappa(np.where(certainty < level, teacher, small)[here], teacher[here]) >= target
                ),
                1.0,
            )
            asked = (certainty < level) | (level == 1)
            labels = np.where(asked, teacher, small)[there]
            reached.append([asked[there].mean(), kappa(labels, teacher[there]), kappa(labels, people[there])])
        yield [target, *np.mean(reached, axis=0).tolist()]


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__, (COLLECTION,)).parse_args()
    pairs = read_pairs(existing(arguments.collections / COLLECTION), EmbeddingCache(arguments.cache, "float32"))
    if arguments.quick:
        some = take_some(pairs, np.arange(len(pairs.queries)), 60, np.random.default_rng(SEED))
        arrays = {name: getattr(pairs, name)[some] for name in ("query", "text", "grade", "people")}
        pairs = replace(pairs, scores={name: score[some] for name, score in pairs.scores.items()}, **arrays)
    results, seconds, rate = run_folds(pairs, *((8, 1) if arguments.quick else (STEPS, FOLDS)))
    packages = ["sentence-transformers", "torch"]
    judged = {"judge": "", "threshold fitted to": "", "kappa with people": "", "difference from the teacher": ""}
    judged |= {"kappa with the teacher": "", "share relevant": ".3f"}
    note = f"{seconds:.0f} processor seconds per training; {rate:.0f} pairs per second on one core."
    cascade = {"certainty": "", "share to the teacher": ".3f", "agreement": ".3f", "kappa with the teacher": ".3f"}
    cascade |= {"random": ".3f", "MiniLM cosine as the small judge": ".3f", "kappa with people": ".3f"}
    chosen = {"wanted kappa": "", "share to the teacher": ".3f", "kappa with the teacher": ".3f"}
    tables = [
        ResultTable("Distilled judge and teacher", judged, list(judge_rows(pairs, results)), note, packages),
        ResultTable("Cascade", cascade, list(cascade_rows(pairs, results)), packages=packages),
        ResultTable(
            "Certainty chosen on other queries",
            chosen | {"kappa with people": ".3f"},
            list(chosen_rows(pairs, results)),
            packages=packages,
        ),
    ]
    publish("judge_distil", tables, quick=arguments.quick)


if __name__ == "__main__":
    main()
