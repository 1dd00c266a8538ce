"""Term vectors in `adapt`: the default settings with and without them.

nDCG@10 of all-MiniLM-L6-v2 on test queries whose positives training never saw. "No labels" is the untrained start,
whose settings are selected on the validation queries; "people's labels" is what `adapt` selects there among that start
and heads trained from it. Paired bootstrap intervals and permutation test over queries, one seed. Takes 8 minutes once
vectors are cached; `--quick` measures stackfaq.

    python -m benchmarks.term_vectors [--quick] [--only COLLECTION ...] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from benchmarks.adapt import LEAST_GRADE, MINILM, make_run, people_labels
from benchmarks.collections_io import options, present
from benchmarks.report import ResultTable, publish
from darklode.flows.jobs.adapt_encoder import pairs_step, terms_step
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.types import Doubles
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import MEASURE, QuerySet, Task
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.fit.head_methods import HeadMethod
from darklode.pipeline.train.fit.model_selection import best_score, preference, score_shares, without_shared_positives
from darklode.pipeline.train.fit.term_start import TermStart
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

COLLECTIONS = ("insuranceqa", "homedepot", "stackfaq")
"""Collections with enough validation queries to select without cross-validation."""
SETTINGS = AdaptSettings(method="linear", init="term_vectors")
LABELS = {"no labels": 1, "people's labels": None}
"""Number of the settings that are tried, of which the first is the untrained start; None: all."""


def open_task(name: str, folder: Path, scratch: Path, cache: str) -> tuple[BaseEncoder, Task, QuerySet, float]:
    """A collection with people's labels: the encoder, the task, test queries whose positives are not in training, and
    the processor seconds that term vectors took.
    """
    source = TrainingSource(make_run(folder, scratch / "run", people_labels(folder, LEAST_GRADE[name])), 0, False, 0)
    base = BaseEncoder(MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (source,))
    out, seconds = Run(str(scratch / "out")), 0.0
    for step in (pairs_step(base, Settings(adapt=SETTINGS)), terms_step(base, SETTINGS, [SETTINGS.method], 0)):
        began = time.process_time()
        out.execute(step.plan(out), step.execute)
        seconds = time.process_time() - began
    tables = out.tables()
    frozen = base.open(tables)
    task = without_shared_positives(Task.from_tables(tables, frozen, same_document=False))
    test, shares = QuerySet.from_tables(tables, frozen, "test"), tables.read("adaptation_queries")
    own = shares.filter(pc.invert(shares["shares_positive"]))["query_id"]
    own_rows = np.flatnonzero(pc.is_in(test.ids, own.combine_chunks()).to_numpy(zero_copy_only=False))
    return base, task, test.take(own_rows), seconds


def score(task: Task, test: QuerySet, vectors: np.ndarray) -> Doubles:
    """nDCG@10 of each test query, shape (n_queries,)."""
    lists = test.ranking(task.frozen, vectors, 10 + test.max_uncertain)
    return np.asarray(compute_measures([lists], test.labels, test.ids.to_pylist(), [MEASURE])[:, 0])


def adapted_scores(base: BaseEncoder, task: Task, test: QuerySet) -> dict[str, Doubles]:
    """Scores of what is selected on validation without and with people's labels."""
    method, trials, scores = HeadMethod(SETTINGS, base), [], {}
    for setting in method.hyperparameters:
        weights = method.fit(task, setting, 0, lambda *_: None).best_weights
        trials.append((best_score(score_shares(task, method, weights)), weights))
        print(f"  {setting:g}: {trials[-1][0]}", flush=True)
    for labels, n_settings in LABELS.items():
        best, weights = max(trials[:n_settings], key=lambda trial: preference(trial[0]))
        vectors = method.vectors(weights, best.share, test) if best.share else test.vectors
        scores[labels] = score(task, test, vectors)
        mix = TermStart.from_weights(weights)
        print(f"  {labels}: terms {mix.share if mix else 0:g}, of the way {best.share:g}", flush=True)
    return scores


def measure(name: str, folder: Path, cache: str) -> list[list[object]]:
    """A row without and one with people's labels."""
    with tempfile.TemporaryDirectory() as scratch:
        base, task, test, seconds = open_task(name, folder, Path(scratch), cache)
        base_scores = score(task, test, test.vectors)
        plain = replace(task, train=replace(task.train, terms=None))
        used, without = (adapted_scores(base, each, test) for each in (task, plain))
    rows = [
        result_row([name, labels, len(test), float(base_scores.mean())], base_scores, without[labels], used[labels])
        for labels in LABELS
    ]
    return [[*row, seconds] for row in rows]


def result_row(head: list[object], base: Doubles, without: Doubles, used: Doubles) -> list[object]:
    """Lifts over the base without and with term vectors, and their difference."""
    groups, row = np.arange(len(base)), [*head, float((without - base).mean())]
    for other in (base, without):
        gain = compare_paired(used[:, None], other[:, None], groups, ResamplingSettings())
        row += [float(end[0]) for end in (gain.mean, gain.low, gain.high)]
    row.append(float(gain.p[0]))
    print(row, flush=True)
    return row


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__, COLLECTIONS).parse_args()
    names = present(["stackfaq"] if arguments.quick else arguments.only, arguments.collections)
    columns = {"labels": "", "test queries": ",d", "base": ".4f", "lift without": "+.4f", "with": "+.4f"}
    columns |= {"95 % from": "+.3f", "to": "+.3f", "difference": "+.4f", "from ": "+.3f", "to ": "+.3f", "p": ".4f"}
    columns |= {"to learn them, processor s": ".0f"}
    for name in names:
        rows = [row[1:] for row in measure(name, arguments.collections / name, arguments.cache)]
        publish("term_vectors", [ResultTable(name, columns, rows)], quick=arguments.quick)


if __name__ == "__main__":
    main()
