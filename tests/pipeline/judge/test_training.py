"""Judges that learn: taught by all labels for the pool, and compared on queries whose labels they never saw."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import fit_threshold
from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.calibration import CALIBRATE, calibrate
from darklode.pipeline.judge.port import Judge, TrainableJudge
from darklode.pipeline.judge.stage import JUDGE, judge
from darklode.pipeline.judge.threshold import fit_smooth_threshold
from darklode.pipeline.judge.training import train_judges
from darklode.schemas.judging import JudgeSettings
from helpers.calibrating import CHUNKS, HEAD, full, given_run, likely
from helpers.runs import execute, read
from helpers.scripted_judge import Said, ScriptedJudge


class Memorizer(ScriptedJudge, TrainableJudge):
    """Finds relevant what it was taught to be relevant, by chunk; is certain of queries that it was taught of."""

    def __init__(self, judge_id: str = "untaught", queries: frozenset[str] = frozenset(), from_: int = CHUNKS) -> None:
        super().__init__(self._say, judge_id)
        self.queries, self.relevant_from = queries, from_

    def _say(self, pair: dict[str, str]) -> Said:  # type: ignore[override]
        relevant = int(pair["chunk_id"][1:]) >= self.relevant_from
        sure = 0.4 if pair["query_id"] in self.queries else 0.1
        return {"relevant": relevant, "probability": 0.5 + sure if relevant else 0.5 - sure}

    def with_training(
        self, pairs: pa.Table, positive: NDArray[np.bool_], weight: NDArray[np.float64] | None = None
    ) -> "Memorizer":
        chunks = [int(name[1:]) for name, found in zip(pairs["chunk_id"].to_pylist(), positive, strict=True) if found]
        queries = frozenset(pairs["query_id"].to_pylist())
        return Memorizer(f"taught of {len(queries)}", queries, min(chunks))


def compared(run: Run, file: Path, lines: list[str], judge_for: Callable[[TenantChunks], Judge]) -> None:
    file.write_text("\n".join([HEAD, *lines]) + "\n")
    settings = JudgeSettings(human_labels=str(file))

    def work(tables: Tables, output: Output) -> None:
        calibrate(tables, output, settings, judge_for=judge_for, tenant="a", seed=13)

    execute(run, CALIBRATE, work)


def judged(run: Run) -> list[dict[str, object]]:
    def work(tables: Tables, output: Output) -> None:
        judge(tables, output, JudgeSettings(), judge_for=train_judges(tables, lambda _chunks: Memorizer()))

    execute(run, JUDGE.reading("human_labels"), work)
    return read(run, "verdicts")


def test_labels_are_compared_with_what_was_learned_from_other_queries(run: Run, tmp_path: Path) -> None:
    given_run(run)
    compared(run, tmp_path / "labels.csv", full("a", relevant_from=5), lambda _chunks: Memorizer())
    (row,) = read(run, "calibration")
    assert (row["judge_id"], row["kappa"], row["labels"]) == ("taught of 20", 1.0, 159)
    said = {round(float(str(bin_["mean_probability"])), 3) for bin_ in read(run, "reliability")}
    assert said == {0.4, 0.6}, "it is sure of the queries that it was taught of alone"


def test_replies_come_back_in_the_order_of_the_labels(run: Run, tmp_path: Path) -> None:
    """Each query has its own first relevant chunk: replies in another order would disagree."""
    given_run(run)
    lines = [
        f"a,q{query:02},c{chunk},{int(chunk >= query % 5)}"
        for query in range(20)
        for chunk in range(CHUNKS)
        if (query, chunk) != (19, 7)
    ]

    class Knowing(Memorizer):
        def _say(self, pair: dict[str, str]) -> Said:  # type: ignore[override]
            relevant = int(pair["chunk_id"][1:]) >= int(pair["query_id"][1:]) % 5
            return {"relevant": relevant, "probability": float(relevant)}

        def with_training(
            self, pairs: pa.Table, positive: NDArray[np.bool_], weight: NDArray[np.float64] | None = None
        ) -> "Knowing":
            return Knowing("knowing")

    compared(run, tmp_path / "labels.csv", lines, lambda _chunks: Knowing())
    assert read(run, "calibration")[0]["kappa"] == 1.0


def test_the_pool_is_judged_by_what_all_labels_taught(run: Run, tmp_path: Path) -> None:
    given_run(run, tenants=("a", "b"))
    compared(run, tmp_path / "labels.csv", full("a", relevant_from=3), lambda _chunks: Memorizer())
    verdicts = judged(run)
    own = [row for row in verdicts if row["tenant"] == "a"]
    assert {row["judge_id"] for row in own} == {"taught of 20"}
    assert all(row["relevant"] == (int(str(row["chunk_id"])[1:]) >= 3) for row in own)
    assert {row["judge_id"] for row in verdicts if row["tenant"] == "b"} == {"untaught"}, "nobody labelled its pairs"


def test_too_few_labels_teach_nothing(run: Run, tmp_path: Path) -> None:
    given_run(run)
    compared(run, tmp_path / "labels.csv", full("a", relevant_from=3, n=12), lambda _chunks: Memorizer())
    assert read(run, "calibration")[0]["judge_id"] == "untaught"
    assert {row["judge_id"] for row in judged(run)} == {"untaught"}


def test_a_learner_is_asked_of_nothing_but_the_labelled_pairs(run: Run, tmp_path: Path) -> None:
    given_run(run)
    learned: list[Memorizer] = []

    class Noting(Memorizer):
        def with_training(
            self, pairs: pa.Table, positive: NDArray[np.bool_], weight: NDArray[np.float64] | None = None
        ) -> Memorizer:
            learned.append(super().with_training(pairs, positive, weight))
            return learned[-1]

    compared(run, tmp_path / "labels.csv", full("a", relevant_from=3), lambda _chunks: Noting())
    *folds, whole = learned
    assert whole.asked == []
    asked = [{query for _, query, _ in one.asked} for one in folds]
    assert len(asked) == 5
    assert set.union(*asked) == set.union(*(set(one.queries) for one in folds))
    assert not any(own & one.queries for own, one in zip(asked, folds, strict=True))


def test_the_port_is_kept() -> None:
    judge = Memorizer().with_training(pa.table({"query_id": ["q"], "chunk_id": ["c2"]}), np.array([True]))
    asked = pa.table({name: ["c2"] for name in ("tenant", "query_id", "chunk_id")})
    assert asyncio.run(judge.judge(asked))["relevant"].to_pylist() == [True]


def test_the_threshold_of_a_trained_judge_is_fitted_by_expected_kappa(run: Run, tmp_path: Path) -> None:
    given_run(run)

    class Certain(Memorizer):
        """Gives chunk c0 to c7 probabilities from 0.05 to 0.75, whatever it was taught."""

        def _say(self, pair: dict[str, str]) -> Said:  # type: ignore[override]
            return likely(pair)

        def with_training(
            self, pairs: pa.Table, positive: NDArray[np.bool_], weight: NDArray[np.float64] | None = None
        ) -> "Certain":
            return Certain("certain")

    lines = [
        f"a,q{query:02},c{chunk},{int(chunk >= (5 if query % 3 else 1))}" for query in range(19) for chunk in range(8)
    ]
    compared(run, tmp_path / "labels.csv", lines, lambda _chunks: Certain())
    (row,) = read(run, "calibration")
    probability = np.array([0.05 + 0.1 * chunk for _ in range(19) for chunk in range(8)], np.float32)
    positive = np.array([line.endswith("1") for line in lines])
    expected, best = fit_smooth_threshold(probability, positive), fit_threshold(probability, positive)
    assert expected != best
    assert (row["fitted_threshold"], row["fitted_kappa"]) == expected
