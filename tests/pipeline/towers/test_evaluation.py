"""How near the student is, by counts of one's own, and that its lists are by the vectors that are handed over."""

import numpy as np
import pytest

from darklode.pipeline.towers.evaluation import TIMING_BATCH_SIZE, TOWER_TEST_STAGE, measure_speed, overlap
from darklode.pipeline.towers.stage import load_best_student, query_set
from darklode.pipeline.train.fit.determinism import deterministic
from helpers.adapted import SIDES
from helpers.runs import read

from .conftest import Distilled


def test_overlap_is_the_share_of_the_first_lists_texts() -> None:
    first, second = np.array([[1, 2, 3, -1], [4, 5, -1, -1]]), np.array([[3, 1, 9, -1], [6, 7, 8, -1]])
    assert overlap(first, second) == pytest.approx((2 / 3 + 0) / 2)
    assert overlap(first, first) == 1


def test_the_health_figure_is_the_mean_distance_of_each_side(distilled: Distilled) -> None:
    rows = {row["split"]: row for row in read(distilled.out, "tower_health")}
    assert set(rows) == {"validation", "unseen", "test"}
    with deterministic(0):
        student = load_best_student(distilled.out.tables(), distilled.pair)
        held = query_set(distilled.out.tables(), distilled.pair, "unseen")
        far = np.linalg.norm(held.vectors - student.vectors(held), axis=1)
    assert rows["unseen"]["distance"] == pytest.approx(far.mean(), abs=1e-6)
    assert rows["unseen"]["queries"] == len(held)
    assert rows["validation"]["distance"] == pytest.approx(read(distilled.out, "distillation_trials")[0]["distance"])
    assert all(0 <= float(str(row["overlap"])) <= float(str(row["top_100"])) <= 1 for row in rows.values())


def test_both_are_asked_the_labelled_test_queries_and_timed(distilled: Distilled) -> None:
    rows = read(distilled.out, "test_rankings")
    assert {row["system"] for row in rows} == {"teacher", "student"}
    assert {str(row["query_id"]).partition("-")[0] for row in rows} == {"test"}
    assert len(read(distilled.out, "test_queries")) == SIDES["test"]
    facts = distilled.out.manifests()[TOWER_TEST_STAGE.name].facts
    assert facts["student"]["numbers"] < facts["teacher"]["numbers"]
    assert all(facts[name]["per_second"] > 0 for name in ("teacher", "student"))


class Recording:
    """Stands for a model: keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def encode(self, texts: list[str], batch_size: int, show_progress_bar: bool) -> None:
        assert len(texts) <= batch_size
        assert not show_progress_bar
        self.batches.append(texts)


def test_speed_is_that_of_all_queries_alone_and_together() -> None:
    texts, model = [f"query {number}" for number in range(2 * TIMING_BATCH_SIZE + 3)], Recording()
    assert measure_speed(model, texts).keys() == {"milliseconds", "per_second"}
    together = [
        texts[:TIMING_BATCH_SIZE],
        texts[TIMING_BATCH_SIZE : 2 * TIMING_BATCH_SIZE],
        texts[2 * TIMING_BATCH_SIZE :],
    ]
    assert model.batches == [*together, *([one] for one in texts), *together]
