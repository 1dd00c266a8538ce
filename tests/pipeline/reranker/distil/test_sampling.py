"""Held-out queries, soft targets, and the importance sample of training pairs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.reranker.distil.sampling import (
    DISTILLED_PAIRS_STAGE,
    SOURCE_TABLES,
    distilled_pairs,
    hardness,
    importance_draws,
    soft_targets,
)
from helpers.adapted import TENANT
from helpers.distilled import judged_build
from helpers.runs import execute, put, read

NAN = float("nan")


def test_soft_targets_are_probabilities_then_grades_then_labels() -> None:
    relevant = np.array([False, True, False, False, True, True, True, False])
    probability = np.array([0.3, 0.6, NAN, NAN, NAN, NAN, NAN, NAN])
    grade = np.array([1, 3, 0, 1, 2, 3, NAN, NAN])
    expected = [0.3, 0.6, 0.0, 0.25, 0.75, 1.0, 1.0, 0.0]
    assert soft_targets(relevant, probability, grade).tolist() == pytest.approx(expected)


def test_binary_grades_are_hard_targets() -> None:
    relevant = np.array([True, False])
    assert soft_targets(relevant, np.full(2, NAN), np.array([1.0, 0.0])).tolist() == [1.0, 0.0]
    assert soft_targets(~relevant & False, np.full(2, NAN), np.array([0.0, 0.0])).tolist() == [0.0, 0.0]


def test_draws_estimate_the_uniform_mean_without_bias_and_prefer_hard_pairs() -> None:
    random = np.random.default_rng(5)
    hard = random.random(200) ** 4
    values = random.normal(size=200)
    means = []
    for _ in range(400):
        draws, weight = importance_draws(hard, 100, random)
        assert draws.sum() in {99, 100, 101}
        means.append((draws * weight * values).sum() / 100)
    assert np.mean(means) == pytest.approx(values.mean(), abs=0.02)
    draws, weight = importance_draws(hard, 100_000, random)
    assert weight.max() <= 2
    hardest = np.argsort(hard)[-20:]
    assert draws[hardest].mean() > 2 * draws.mean()


def test_without_hard_pairs_draws_are_uniform() -> None:
    draws, weight = importance_draws(np.zeros(10), 30, np.random.default_rng(1))
    assert draws.tolist() == [3] * 10
    assert weight.tolist() == [1.0] * 10


def test_a_pair_is_hard_if_ranks_do_not_tell_its_label() -> None:
    rank = pa.array([1, 2, 3, 50, 60, 70, None], pa.int32())
    relevant = [True, True, False, False, False, True, False]
    rows = pa.table({"best_rank": rank, "n_retrievers": [3, 3, 3, 1, 1, 1, 0], "relevant": relevant})
    hard = hardness(rows, np.array(relevant, np.float64))
    assert set(np.argsort(hard)[-2:].tolist()) == {2, 5}


def test_parts_share_no_query_and_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    source = judged_build(tmp_path / "run").tables(*SOURCE_TABLES, "human_labels")
    outputs = []
    for number, seed in enumerate((1, 1, 2)):
        out = Run(str(tmp_path / f"out{number}"))
        execute(
            out, DISTILLED_PAIRS_STAGE, lambda t, o, seed=seed: distilled_pairs(t, o, source, TENANT, 300, seed=seed)
        )
        outputs.append(read(out, "distilled_pairs"))
    first, again, other = outputs
    assert first == again
    assert first != other
    parts: dict[str, set[object]] = {}
    for row in first:
        parts.setdefault(str(row["part"]), set()).add(row["query_id"])
    assert sum(map(len, parts.values())) == len(set.union(*parts.values()))
    assert len(parts["test"]) == 40  # 30 % of 132
    assert len(parts["validation"]) == 13
    assert sum(int(str(row["draws"])) for row in first if row["part"] == "train") in {299, 300, 301}
    assert all(row["people"] is not None for row in first)


def test_queries_with_peoples_labels_are_held_out_first(tmp_path: Path) -> None:
    run = judged_build(tmp_path / "run")
    labels = run.tables("human_labels").read("human_labels")
    put(run, "human_labels", labels.slice(0, 15))
    labelled = set(labels.slice(0, 15)["query_id"].to_pylist())
    out, source = Run(str(tmp_path / "out")), run.tables(*SOURCE_TABLES, "human_labels")
    execute(out, DISTILLED_PAIRS_STAGE, lambda t, o: distilled_pairs(t, o, source, TENANT, 300, seed=1))
    rows = read(out, "distilled_pairs")
    assert labelled <= {row["query_id"] for row in rows if row["part"] == "test"}


def test_too_few_queries_and_equal_verdicts_are_errors(tmp_path: Path) -> None:
    run = judged_build(tmp_path / "run", people=False)
    with pytest.raises(ArtifactError, match="has verdicts on 0 queries"):
        execute(
            Run(str(tmp_path / "a")),
            DISTILLED_PAIRS_STAGE,
            lambda t, o: distilled_pairs(t, o, run.tables(*SOURCE_TABLES), "other", 300, seed=1),
        )
    verdicts = run.tables("verdicts").read("verdicts")
    no = pa.array([False] * verdicts.num_rows)
    column = verdicts.schema.get_field_index("relevant")
    put(run, "verdicts", verdicts.set_column(column, verdicts.schema.field(column), no))
    with pytest.raises(ArtifactError, match="there is nothing to learn"):
        execute(
            Run(str(tmp_path / "b")),
            DISTILLED_PAIRS_STAGE,
            lambda t, o: distilled_pairs(t, o, run.tables(*SOURCE_TABLES), TENANT, 300, seed=1),
        )
