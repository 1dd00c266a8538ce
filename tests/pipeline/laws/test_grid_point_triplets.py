"""What a cell of towers learns from: the run's triplets of its queries, or pairs of another source, whole."""

from pathlib import Path

import pytest

from darklode.pipeline.laws.grid_point import prefix
from darklode.pipeline.laws.grid_point_triplets import write_point_triplets
from darklode.pipeline.laws.trainer import PointKey
from helpers.dual import TOPICAL
from helpers.runs import read

from .conftest import Grid


@pytest.mark.slow
def test_triplets_of_labels_are_those_of_the_cells_queries(towers: Grid, tmp_path: Path) -> None:
    evaluator, whole = towers.evaluator(), read(towers.out, "tower_triplets")
    taught, held = evaluator.training_task("labels", 0), list[set[object]]()
    for size in (10, 30):
        task = taught.with_queries(prefix(taught.train, size, 0))
        triplets = write_point_triplets(evaluator.data, task, PointKey("labels", size, 0), str(tmp_path / str(size)))
        rows = triplets.read("tower_triplets").to_pylist()
        ids = set(task.train.ids.to_pylist())
        assert rows == [row for row in whole if row["query_id"] in ids]  # in the order and with the negatives of all
        held.append({row["query_id"] for row in rows})
    assert held[0] < held[1]


@pytest.mark.slow
def test_pairs_of_another_source_are_read_as_views_need_them(towers: Grid, tmp_path: Path) -> None:
    evaluator, whole = towers.evaluator(), {row["positive_id"]: row for row in read(towers.out, "tower_triplets")}
    task = evaluator.training_task("shuffled", 0)
    point = PointKey("shuffled", len(task.train), 0)
    rows = write_point_triplets(evaluator.data, task, point, str(tmp_path)).read("tower_triplets").to_pylist()
    assert len(rows) == len(task.pair_query)
    assert any(row["query_id"] != whole[row["positive_id"]]["query_id"] for row in rows)
    for row in rows:
        same = ("tenant", "index", "title", "content", "key")
        assert {name: row[name] for name in same} == {name: whole[row["positive_id"]][name] for name in same}
        assert (row["negative_id"], row["weight"]) == (None, 1.0)
        assert row["answers"] == [row["key"]]
    topical_row = next(row for row in rows if row["positive_id"].startswith(TOPICAL.rpartition("-")[0]))
    assert topical_row["content"].startswith("a subject\n")
