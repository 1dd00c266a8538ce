"""The pool on the page."""

from collections import Counter
from statistics import median

from darklode.pipeline.base.artifacts import Run
from helpers.report_runs import key_of, shown
from helpers.runs import read


def test_sizes_of_the_pools(chance_run: Run) -> None:
    sizes = Counter(key_of(row) for row in read(chance_run, "pool"))
    each = [sizes[key_of(row)] for row in read(chance_run, "queries")]
    found = shown(chance_run)
    (summary,) = found["pool-sizes"].table.to_pylist()
    assert (summary["min"], summary["max"], summary["median"]) == (min(each), max(each), median(each))
    rows = found["pool-histogram"].table.to_pylist()
    for row in rows:
        assert row["queries"] == sum(row["candidates_from"] <= n <= row["candidates_to"] for n in each)
    assert sum(row["queries"] for row in rows) == len(each)
