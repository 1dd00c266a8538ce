"""Probing judges that need no language model.

Rates of wrong replies to altered pairs (`pipeline/judge/probe`) with 95 % Wilson intervals, one pair per query: the
embedded judge, the share of the query's idf-weighted words in the chunk (idf coverage), and the cosine of
all-MiniLM-L6-v2, on pools of two collections (top 60 of the seven embedded retrievers, up to 50 queries). The threshold
of coverage and cosine is the one with the highest kappa on the other collection. Judges without a language model read
no instructions; a planted one only adds words. A language model was not measured: no weights were at hand.

Takes 10 minutes; `--quick` measures cranfield only, without MiniLM.

    python -m benchmarks.judge_probe [--quick] [--only COLLECTION ...] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.collections_io import options, present
from benchmarks.judge_learning import LabelledCollection, build_pool, read_labelled
from benchmarks.quality import MINILM
from benchmarks.report import ResultTable, publish
from benchmarks.run_tables import TENANT
from darklode.pipeline.base.agreement import fit_threshold
from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.judge.cosine import Cosine
from darklode.pipeline.judge.embedded import THRESHOLD, EmbeddedJudge
from darklode.pipeline.judge.pairs import pool_pairs
from darklode.pipeline.judge.port import Judge, replies_of
from darklode.pipeline.judge.probe.kinds import ORDER_OF_EXAMPLES, OTHER_TENANT_CHUNK, PROBE_KINDS
from darklode.pipeline.judge.probe.rates import probe_rates
from darklode.pipeline.judge.probe.sample import draw_probes
from darklode.pipeline.judge.probe.stage import PROBE_STAGE, Probing
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.judge.stage import judge as judge_pool
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.schemas.judging import JudgeSettings

NAMES = ("trec-dl-2019", "cranfield")
KINDS = [kind for kind in PROBE_KINDS if kind not in {ORDER_OF_EXAMPLES, OTHER_TENANT_CHUNK}]
PAIRS_PER_KIND, SEED = 50, 13
FITTED_PAIRS = 3_000  # of a collection, for the threshold of the other

Floats = NDArray[np.float64]
Score = Callable[[pa.Table], Floats]


class ScoreJudge(Judge):
    """A judge by the threshold of a score.

    Args:
        name: its id.
        score: scores of rows of `PAIRS`, shape (n_pairs,).
        threshold: lowest score of a relevant pair.
    """

    judge_id: str = ""

    def __init__(self, name: str, score: Score, threshold: float) -> None:
        self.judge_id, self._score, self._threshold = name, score, threshold

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """A score that is unknown is not relevant."""
        relevant = np.nan_to_num(self._score(pairs), nan=-1.0) >= self._threshold
        return replies_of({"relevant": pa.array(relevant)}, pairs.num_rows)


@dataclass(frozen=True)
class Subject:
    """A collection with its pool and scores.

    Attributes:
        collection: texts and labels.
        tables: queries, chunks, pool and rankings.
        scores: score by judge.
    """

    collection: LabelledCollection
    tables: Tables
    scores: dict[str, Score]


def subject(name: str, root: Path, folder: Path, cache: EmbeddingCache | None) -> Subject:
    """Build a collection's pool and its judges' scores."""
    collection = read_labelled(name, root)
    tables = build_pool(collection, folder, None)
    embedded = EmbeddedJudge(TermSpace(TenantChunks(tables, TENANT).batches()))
    scores: dict[str, Score] = {
        "embedded": embedded._probability,
        "idf coverage": lambda pairs: embedded._shared_information(embedded._count_terms(pairs))[0],
    }
    if cache:
        cosine = Cosine(Deferred(MINILM), cache)
        scores["MiniLM cosine"] = lambda pairs: cosine(pairs)[:, 0]
    return Subject(collection, tables, scores)


def fitted(own: Subject, judge: str) -> float:
    """The threshold of a judge with the highest kappa on labelled pairs of a collection."""
    chunks = TenantChunks(own.tables, TENANT)
    with pool_pairs(own.tables, chunks) as pool:
        numbers = np.sort(np.random.default_rng(SEED).permutation(len(pool.rows))[:FITTED_PAIRS])
        pairs = pool.take(numbers)
    keys = zip(pairs["query_id"].to_pylist(), pairs["chunk_id"].to_pylist(), strict=True)
    grades = np.array([own.collection.grades.get((int(query), int(chunk)), 0) for query, chunk in keys])
    scores = np.nan_to_num(own.scores[judge](pairs), nan=-1.0)
    fit = fit_threshold(scores.astype(np.float32), grades >= own.collection.first_grade)
    assert fit, f"{judge} agrees with people no better than chance"
    return fit[0]


def probe_rows(run: Run, name: str, judge: Judge) -> list[list[object]]:
    """Judge the pool, then probe the judge: a row per kind."""
    judging = run.plan(JUDGE, {"judge": judge.judge_id})
    settings = JudgeSettings()
    run.execute(judging, lambda tables, output: judge_pool(tables, output, settings, judge_for=lambda _chunks: judge))
    found: list[pa.Table] = []

    def probe(tables: Tables, output: Output) -> None:
        drawn = draw_probes(tables, KINDS, PAIRS_PER_KIND, SEED)
        rows, judge_ids = Probing(tables, output, lambda _chunks: judge, None).judge(drawn)
        outcomes = {kind: [row["outcome"] for row in rows if row["kind"] == kind] for kind in KINDS}
        skipped = {kind: "not measured" for kind in PROBE_KINDS if not outcomes.get(kind)}
        found.append(probe_rates(outcomes, {}, skipped, judge_ids))

    run.execute(run.plan(PROBE_STAGE, {"judge": judge.judge_id}), probe)
    rows = [row for row in found[0].to_pylist() if row["kind"] in KINDS]
    return [[name, judge.judge_id, row["kind"], row["pairs"], row["rate"], row["low"], row["high"]] for row in rows]


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__, NAMES).parse_args()
    names = present(["cranfield"] if arguments.quick else arguments.only, arguments.collections)
    cache = None if arguments.quick else EmbeddingCache(arguments.cache, "float32")
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch) / name for name in names}
        subjects = {name: subject(name, arguments.collections, folders[name], cache) for name in names}
        for name, own in subjects.items():
            other = next((other for other in subjects.values() if other is not own), own)
            for judge, score in own.scores.items():
                threshold = THRESHOLD if judge == "embedded" else fitted(other, judge)
                rows += probe_rows(Run(str(folders[name])), name, ScoreJudge(judge, score, threshold))
    columns = {"collection": "", "judge": "", "kind of probe": "", "pairs": ",", "rate": ".2f"}
    note = "Flip rates: repeated, reworded query. The other kinds are false positive rates."
    table = ResultTable("Wrong replies to probes", columns | {"low": ".2f", "high": ".2f"}, rows, note)
    publish("judge_probe", [table], quick=arguments.quick)


if __name__ == "__main__":
    main()
