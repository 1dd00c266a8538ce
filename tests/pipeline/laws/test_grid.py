"""The grid: nested samples of whole clusters, a unit a cell, every source on the same test queries."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.flows.run_laws import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.laws.grid import GRID, _apart, default_sizes, prefix
from darklode.pipeline.train.task import Labels, Questions, Task
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.laws import LawSettings
from helpers.adapted import SIDES, base_for, build_to_adapt, settings_for
from helpers.runs import read

QUICK = AdaptSettings(steps=40, batch=16, learning_rates=(3e-3,), start="base", refresh_steps=20)
CELLS = LawSettings(sizes=(0, 10, 20), sources=("labels", "bm25", "ict", "shuffled"), seeds=2)


def asked(groups: list[str]) -> Any:
    class Queries(SimpleNamespace):
        def __len__(self) -> int:
            return len(groups)

    return Queries(groups=pa.array(groups))


def test_a_larger_size_holds_the_smaller_ones_and_clusters_come_whole() -> None:
    groups = [f"cluster {number // 3}" for number in range(60)]
    train = asked(groups)
    taken = [set(prefix(train, size, 1).tolist()) for size in (9, 20, 60)]
    assert taken[0] < taken[1] < taken[2] == set(range(60))
    for rows in taken:
        counts = np.unique([groups[row] for row in rows], return_counts=True)[1]
        assert (counts < 3).sum() <= 1  # the last one may be cut
    assert taken[1] != set(prefix(train, 20, 2).tolist())


def test_sizes_are_all_queries_and_their_halves() -> None:
    assert default_sizes(5036) == [78, 157, 314, 629, 1259, 2518, 5036]
    assert default_sizes(40) == [20, 40]


def test_no_source_teaches_a_text_that_answers_a_measured_query() -> None:
    n, none = 4, np.empty(0, np.int64)
    texts = [f"q{number}" for number in range(n)]
    labels = pa.table({"query_id": pa.array([], pa.string())})
    train = Questions(pa.array(texts), np.zeros((n, 2), np.float32), np.zeros(n, np.int32), labels, texts)
    query, position = np.array([0, 1, 1, 2, 3]), np.array([5, 6, 7, 8, 9])
    frozen: Any = SimpleNamespace()
    task = Task(frozen, train, train, query, position, Labels.of(query, position, 10), Labels(none, 10), None)
    left = _apart(task, np.array([7, 9, 9]))
    assert left.train.texts == ["q0", "q2"]
    assert left.pair_position.tolist() == [5, 8]


@pytest.mark.slow
def test_every_cell_is_measured_on_the_same_queries_and_none_is_trained_twice(tmp_path: Any) -> None:
    pytest.importorskip("sentence_transformers")
    source = build_to_adapt(tmp_path / "run")
    base, out = base_for(source, root=tmp_path), Run(str(tmp_path / "laws"))
    settings = settings_for(tmp_path).model_copy(update={"adapt": QUICK, "laws": CELLS})
    for step in steps(base, settings):
        out.execute(step.plan(out), step.work)
    rows = read(out, "law_points")
    assert len(rows) == 3 * 3 * 4 * 2  # measures, sizes, sources, seeds
    assert {row["stopped"] for row in rows} == {"fixed steps"}  # 12 validation queries choose nothing
    entropy = [row for row in rows if row["measure"] == "contrastive_entropy"]
    without = {row["value"] for row in entropy if row["size"] == 0}
    assert len(without) == 1  # the encoder itself, whoever's labels
    taught = {row["value"] for row in entropy if row["size"] == 20}
    assert len(taught) == 8
    manifest = out.manifest(GRID)
    assert manifest is not None
    more = settings.model_copy(update={"laws": CELLS.model_copy(update={"seeds": 1})})
    (grid,) = [step for step in steps(base, more) if step.stage is GRID]
    seen: list[str] = []
    out.execute(grid.plan(out), grid.work, lambda _done, _total, note: seen.append(note))
    assert not seen  # nothing was trained
    large = settings.model_copy(update={"laws": LawSettings(sizes=(SIDES["train"] + 9,))})
    (grid,) = [step for step in steps(base, large) if step.stage is GRID]
    plan = grid.plan(out)
    with pytest.raises(SettingsError, match="there are"):
        out.execute(plan, grid.work)
