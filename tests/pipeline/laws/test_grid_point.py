"""A cell: nested samples of whole clusters, and nothing of what is measured."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.laws.grid_point import _hold_out, prefix
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.labels import Labels


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


def test_no_source_teaches_a_text_that_answers_a_measured_query() -> None:
    n, none = 4, np.empty(0, np.int64)
    texts = [f"q{number}" for number in range(n)]
    labels = pa.table({"query_id": pa.array([], pa.string())})
    train = QuerySet(pa.array(texts), np.zeros((n, 2), np.float32), np.zeros(n, np.int32), labels, texts)
    query, position = np.array([0, 1, 1, 2, 3]), np.array([5, 6, 7, 8, 9])
    frozen: Any = SimpleNamespace()
    task = Task(frozen, train, train, query, position, Labels.from_pairs(query, position, 10), Labels(none, 10), None)
    left = _hold_out(task, np.array([7, 9, 9]))
    assert left.train.texts == ["q0", "q2"]
    assert left.pair_position.tolist() == [5, 8]
