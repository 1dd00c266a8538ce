"""A mined run on the page."""

from collections import Counter

from darklode.pipeline.base.artifacts import Run
from helpers.report_runs import parsed, rendered, rows_of
from helpers.runs import read
from helpers.small_log import mine, random_log


def test_a_mined_run_has_its_days_and_sources(run: Run) -> None:
    log = random_log(7)
    mine(run, log)
    root = parsed(rendered(run))
    rows = rows_of(root, "nights")
    assert [row["date"] for row in rows] == sorted(map(str, log))
    pairs = Counter(str(row["source"]) for row in read(run, "mined_pairs"))
    for name, count in pairs.items():
        assert sum(int(row[name.replace("_", " ")]) for row in rows) == count
    by_source = Counter[str]()
    for row in rows_of(root, "mined-triplets"):
        by_source[row["source"]] += int(row["triplets"])
    assert by_source == Counter(str(row["source"]) for row in read(run, "triplets"))
    by_tenant = {row["tenant"]: int(row["pairs"]) for row in rows_of(root, "mined-tenants")}
    assert by_tenant == Counter(str(row["tenant"]) for row in read(run, "mined_pairs"))
