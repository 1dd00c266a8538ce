"""A mined run on the page."""

from collections import Counter

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.drawing import Chart
from darklode.schemas.tables import TABLES
from helpers.report_runs import parsed, rendered, rows_of, shown
from helpers.runs import put, read
from helpers.small_log import mine, random_log


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_the_judge_finds_relevant_is_drawn_with_its_intervals(run: Run) -> None:
    mine(run, random_log(7))
    looked_at = read(run, "mined_pairs")[:12]
    verdicts = [
        {name: row[name] for name in ("tenant", "query_id", "positive_id", "negative_id", "source")}
        | {"tiers": ["large"], "relevant": place % 3 > 0, "negative_relevant": None, "judge_id": "j"}
        for place, row in enumerate(looked_at)
    ]
    put(run, "mined_verdicts", pa.Table.from_pylist(verdicts, TABLES["mined_verdicts"].schema))
    counts = Counter(str(row["source"]) for row in looked_at)
    (chart,) = shown(run)["confirmed"].drawings
    assert isinstance(chart, Chart)
    assert [row.group for row in chart.rows] == sorted(counts)
    assert {row.label for row in chart.rows} == {"large, positives"}, "no negative was judged"
    told = [f"{row.marks[0].tip}" for row in chart.rows]
    assert [tip.rpartition(", ")[2] for tip in told] == [f"{counts[name]} checked" for name in sorted(counts)]
