"""How far the embedded judge agrees with human judgments, on the pool of the seven embedded retrievers.

    python -m benchmarks.judge_quality                # writes benchmarks/results/judge_quality.{md,json}

A chunk counts as positive if its document was judged relevant. The collections list positives only: what is not
listed was never judged and counts as not relevant here, so precision and kappa are lower than a full judgment would
give. The formula was chosen by looking at these four collections; `kappa_left_out` shows what remains when
weights and midpoint are chosen on the other three. `tau` says how far the judge ranks the seven retrievers, all of
them fitted on the corpus like itself, as human judgments do; of neural retrievers it says nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score, precision_score, recall_score

from benchmarks.agreement import Judged, kappas, left_out, tau, within_query_auc
from benchmarks.collections_io import COLLECTIONS, LABELLED, Collection, read_collection
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.judge.embedded import EmbeddedJudge, Features
from darklode.pipeline.judge.port import PAIRS, QUERY_BLOCK
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.schemas.settings import JudgeSettings

EMBEDDED = own_retrievers()

DEPTH = 60
FEATURES = ("coverage", "window", "bm25", "meaning")
WEIGHTS = [np.array(w) / sum(w) for w in product(range(3), range(3), range(3), range(1, 5))]
CAVEAT = "Positives only: what is not listed was never judged, and counts as not relevant."


def pool(collection: Collection, corpus: Corpus) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Pairs that any of the seven found in its first `DEPTH`: query row, chunk row (sorted by both), found by whom."""
    found = np.zeros((len(EMBEDDED), len(collection.queries), corpus.n_chunks), dtype=bool)
    for number, build in enumerate(EMBEDDED.values()):
        rows = build(corpus).search(collection.queries, DEPTH).rows
        query, place = np.nonzero(rows >= 0)
        found[number, query, rows[query, place]] = True
    query, chunk = np.nonzero(found.any(axis=0))
    return query, chunk, found[:, query, chunk].T


def judge(name: str, root: Path) -> Judged:
    """The embedded judge's view of one collection's pool."""
    collection = read_collection(name, root)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Corpus(lambda: iter([collection.chunks]), len(collection.chunks), Path(scratch))
        query, chunk, found_by = pool(collection, corpus)
        began = time.perf_counter()
        embedded = EmbeddedJudge(corpus.terms)
        seen = [embedded.features(pairs) for pairs in _pairs(collection, query, chunk)]
        seconds = time.perf_counter() - began
    relevant = np.zeros((len(collection.queries), int(collection.owners.max()) + 1), dtype=bool)
    for row, documents in enumerate(collection.relevant):
        relevant[row, documents] = True
    features = np.concatenate([_matrix(part) for part in seen])
    score = np.concatenate([part.score for part in seen])
    said = np.concatenate([part.probability for part in seen]) >= JudgeSettings().cut
    positive = relevant[query, collection.owners[chunk]]
    return Judged(name, query, found_by, positive, features, score, said, seconds)


def _matrix(features: Features) -> NDArray[np.float64]:
    return np.stack([getattr(features, name) for name in FEATURES], axis=1)


def _pairs(collection: Collection, query: NDArray[np.int64], chunk: NDArray[np.int64]) -> Iterator[pa.Table]:
    """Rows of `PAIRS`, block by block; ids and hashes are not looked at."""
    ends = np.searchsorted(query, np.arange(QUERY_BLOCK, len(collection.queries) + QUERY_BLOCK, QUERY_BLOCK))
    texts, asked = pa.array(collection.chunks), pa.array(collection.queries)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        columns = dict.fromkeys(PAIRS.names, pa.repeat("", end - start))
        columns |= dict.fromkeys(("title", "heading"), pa.nulls(end - start, pa.string()))
        columns |= {"query": asked.take(pa.array(query[start:end])), "text": texts.take(pa.array(chunk[start:end]))}
        yield pa.table([columns[name] for name in PAIRS.names], schema=PAIRS)


@dataclass(frozen=True)
class Row:
    """A collection's line in the report."""

    collection: str
    queries: int
    pairs: int
    positive: float
    called: float
    precision: float
    recall: float
    kappa: float
    kappa_best_cut: float
    kappa_left_out: float
    auc: float
    tau: float
    seconds: float


def report(all_judged: list[Judged]) -> list[Row]:
    """One line for each collection."""
    table = np.array([[kappas(judged, weights) for judged in all_judged] for weights in WEIGHTS])
    return [_row(judged, rest) for judged, rest in zip(all_judged, left_out(table), strict=True)]


def _row(judged: Judged, rest: float) -> Row:
    same = np.array([1, 1, 1, 3]) / 6
    return Row(
        collection=judged.name,
        queries=len(np.unique(judged.query)),
        pairs=len(judged.query),
        positive=_round(judged.positive.mean()),
        called=_round(judged.relevant.mean()),
        precision=_round(precision_score(judged.positive, judged.relevant)),
        recall=_round(recall_score(judged.positive, judged.relevant)),
        kappa=_round(cohen_kappa_score(judged.positive, judged.relevant)),
        kappa_best_cut=_round(kappas(judged, same).max()),
        kappa_left_out=_round(rest),
        auc=_round(within_query_auc(judged)),
        tau=_round(tau(judged)),
        seconds=_round(judged.seconds),
    )


def _round(value: float) -> float:
    return round(float(value), 3)


def markdown(rows: list[Row]) -> str:
    """The report: what is counted, where it was measured, the table with its means."""
    names = list(asdict(rows[0]))
    cells: list[list[object]] = [list(asdict(row).values()) for row in rows]
    mean = [f"{np.mean([asdict(row)[name] for row in rows]):.3f}" for name in names[3:-1]]
    return "\n".join([CAVEAT, "", machine(), "", markdown_table(names, [*cells, ["mean", "", "", *mean, ""]])])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the collections (BEIR layout)")
    arguments = parser.parse_args()
    rows = report([judge(name, arguments.collections) for name in LABELLED])
    write("judge_quality", markdown(rows), [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
