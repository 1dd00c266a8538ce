"""A run as a report finds it: what is complete, what is out of date, and the thresholds in force."""

from collections.abc import Mapping

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.report.source import (
    STATE_COMPLETE,
    STATE_INCOMPLETE,
    STATE_OUTDATED,
    incomplete,
    open_source,
    thresholds,
    valid_stages,
)
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.settings import CardSettings, Settings
from darklode.schemas.tables import TABLES

QUERY = {"tenant": "a", "query_id": "q", "text": "t", "timestamp": None, "count": 1}
FIRST, SECOND = Stage("first", 1, (), ("raw_queries",)), Stage("second", 1, ("raw_queries",), ())
ORDER = {"first": True, "second": True}


def write(run: Run, *texts: str) -> None:
    rows = [QUERY | {"query_id": text, "text": text} for text in texts]

    def work(_tables: Tables, output: Output) -> None:
        output.write("raw_queries", pa.Table.from_pylist(rows, TABLES["raw_queries"].schema))

    run.execute(run.plan(FIRST, {"texts": list(texts)}), work)


def follow(run: Run) -> None:
    run.execute(run.plan(SECOND, {}), lambda _tables, _output: None)


def states(run: Run, order: Mapping[str, bool] = ORDER) -> dict[str, str]:
    with open_source(run, Settings(), order) as given:
        return valid_stages(given)


def test_a_stage_is_missing_complete_or_older_than_what_it_read(run: Run) -> None:
    assert states(run) == {"first": STATE_INCOMPLETE, "second": STATE_INCOMPLETE}
    write(run, "one")
    assert states(run) == {"first": STATE_COMPLETE, "second": STATE_INCOMPLETE}
    follow(run)
    assert states(run) == {"first": STATE_COMPLETE, "second": STATE_COMPLETE}
    write(run, "one", "two")
    assert states(run) == {"first": STATE_COMPLETE, "second": STATE_OUTDATED}
    with open_source(run, Settings(), ORDER) as given:
        assert incomplete(given) == {"second": STATE_OUTDATED}


def test_a_stage_that_is_not_asked_for_is_not_missed_but_shown_where_it_stands(run: Run) -> None:
    assert states(run, {"first": True, "second": False}) == {"first": STATE_INCOMPLETE}
    write(run, "one")
    follow(run)
    assert list(states(run, {"first": True, "second": False})) == ["first", "second"]


def test_units_of_a_killed_stage_are_counted_until_it_is_complete(run: Run) -> None:
    for name in ("a", "b"):
        run.store.write(f"progress/first/{name}.json", b"{}")
    assert states(run)["first"] == f"{STATE_INCOMPLETE}; 2 work units done"
    write(run, "one")
    run.store.write("progress/first/c.json", b"{}")
    assert states(run)["first"] == STATE_COMPLETE


def test_tables_that_nobody_wrote_are_empty(run: Run) -> None:
    write(run, "one")
    with open_source(run, Settings(card=CardSettings(name="mine")), ORDER) as given:
        assert (given.name, given.written_tables) == ("mine", {"raw_queries"})
        assert (given.tables.rows("raw_queries"), given.tables.rows("verdicts")) == (1, 0)
        assert not given.mined


def test_a_log_among_the_inputs_makes_a_mined_run_before_its_first_table(run: Run) -> None:
    run.store.write("inputs.json", b'{"kind": "mined", "logs": "here", "docs": "there"}')
    with open_source(run, Settings(), ORDER) as given:
        assert given.mined


@pytest.mark.parametrize(("threshold", "cut"), [(0.35, 0.35), (0.5, 0.5)])
def test_one_threshold_is_everybodys(run: Run, threshold: float, cut: float) -> None:
    with open_source(run, Settings(judge=JudgeSettings(threshold=threshold)), ORDER) as given:
        assert thresholds(given).to_pylist() == [{"tenant": None, "threshold": cut}]


def test_fitted_thresholds_are_the_tenants_own_where_there_are_any(run: Run) -> None:
    names = [field.name for field in TABLES["calibration"].schema if not field.nullable]
    known = dict.fromkeys(names, 9) | {"judge_id": "llm-1"}
    rows = [known | {"tenant": name, "fitted_threshold": cut} for name, cut in (("b", 0.7), ("a", 0.2), ("c", None))]
    table = pa.Table.from_pylist(rows, TABLES["calibration"].schema)
    fit = Stage("calibrate", 1, (), ("calibration",))
    run.execute(run.plan(fit, {}), lambda _tables, output: output.write("calibration", table))
    settings = Settings(judge=JudgeSettings(threshold="fitted", human_labels="labels.csv"))
    with open_source(run, settings, ORDER) as given:
        assert thresholds(given).to_pylist() == [{"tenant": "a", "threshold": 0.2}, {"tenant": "b", "threshold": 0.7}]
