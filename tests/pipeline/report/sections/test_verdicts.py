"""Verdicts on the page: probabilities, thresholds, and what could not be read."""

from collections import Counter

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.drawing import Chart
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.report_runs import figure, parsed, rendered, rows_of, shown, text_of
from helpers.runs import put, read


def test_probabilities_of_the_verdicts(chance_run: Run) -> None:
    verdicts = [row for row in read(chance_run, "verdicts") if row["probability"] is not None]
    counts = Counter((int(row["probability"] * 20) / 20, row["relevant"]) for row in verdicts)
    rows = rows_of(parsed(rendered(chance_run)), "verdict-probabilities")
    told = {
        (float(row["probability from"]), relevant): int(row["relevant" if relevant else "not relevant"])
        for row in rows
        for relevant in (True, False)
    }
    assert {key: count for key, count in told.items() if count} == counts


def test_the_threshold_is_drawn_where_it_is(chance_run: Run) -> None:
    settings = Settings(judge=JudgeSettings(threshold=0.35))
    drawn = figure(parsed(rendered(chance_run, settings)), "verdict-probabilities")
    lines = [line.get("x1") for line in drawn.iter("line") if line.get("class") == "rule"]
    assert set(lines) == {"35.0%"}
    assert "threshold 0.35" in text_of(drawn)


def test_verdicts_that_could_not_be_read(chance_run: Run) -> None:
    verdicts = read(chance_run, "verdicts")
    errors = Counter(row["error"] for row in verdicts if row["relevant"] is None)
    rows = shown(chance_run)["unreadable"].table.to_pylist()
    assert rows[0]["verdicts"] == errors.total()
    assert rows[0]["share"] == errors.total() / len(verdicts)
    assert {row["error"]: row["verdicts"] for row in rows[1:]} == errors


def test_each_tenant_has_the_threshold_that_was_fitted_for_it(chance_run: Run) -> None:
    fitted = {"tenant 0": 0.25, "tenant 1": 0.75}
    counts = "labels unreadable true_positives false_positives false_negatives true_negatives probabilities".split()
    known = dict.fromkeys(counts, 9) | {"judge_id": "llm-1"}
    rows = [known | {"tenant": tenant, "fitted_threshold": threshold} for tenant, threshold in fitted.items()]
    put(chance_run, "calibration", pa.Table.from_pylist(rows, schema=TABLES["calibration"].schema))
    settings = Settings(judge=JudgeSettings(threshold="fitted", human_labels="labels.csv"))
    root = parsed(rendered(chance_run, settings))
    rules = {
        line.get("x1") for line in figure(root, "verdict-probabilities").iter("line") if line.get("class") == "rule"
    }
    assert rules == {"25.0%", "75.0%"}
    for row in shown(chance_run, settings)["doubtful-triplets"].table.to_pylist():
        assert row["threshold"] == fitted[row["tenant"]]
        side = 1 if row["doubtful"] == "positive" else -1
        assert row["margin"] == pytest.approx(side * (row["probability"] - row["threshold"]))


def test_probabilities_that_lie_close_have_an_axis_of_their_own(run: Run) -> None:
    said = [0.9, 0.903, 0.95, 1.0, 1.0]
    rows = [
        {"tenant": "a", "query_id": "q", "chunk_id": str(place), "judge_id": "j", "relevant": True, "probability": one}
        for place, one in enumerate(said)
    ]
    put(run, "verdicts", pa.Table.from_pylist(rows, schema=TABLES["verdicts"].schema))
    figure_ = shown(run, Settings(judge=JudgeSettings(threshold=0.9)))["verdict-probabilities"]
    found = [(row["probability_from"], row["relevant"]) for row in figure_.table.to_pylist()]
    assert found == [(0.9, 2), (0.95, 1), (0.995, 2)]
    (chart,) = figure_.drawings
    assert isinstance(chart, Chart)
    assert (chart.axis.ticks[0][1], chart.axis.ticks[-1][1], chart.rules[0].at) == ("0.9", "1", 0)
