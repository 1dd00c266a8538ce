"""What a night finds of earlier ones: days, facts, and what may be learned by now."""

from dataclasses import replace
from datetime import date

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.ingest.logs import INGEST_LOGS
from darklode.pipeline.mine.history import History
from darklode.schemas.tables import TABLES
from helpers.runs import put
from helpers.small_log import DOCS, FIRST, Search, impressions


def given(run: Run, name: str, table: str, settings: dict[str, float] | None = None) -> None:
    """A complete stage that wrote a table without rows."""
    stage = Stage(name, 1, (), (table,))
    run.execute(run.plan(stage, settings or {}), lambda _tables, output: output.write(table, TABLES[table].empty()))


def history(run: Run, refresh_days: int = 7, late_days: int = 2, test_from: date | None = None) -> History:
    return History(run, refresh_days, late_days, test_from, lambda: None)


def with_days(run: Run, *days: int) -> Run:
    """A run whose log has these days of March."""

    def work(_tables: Tables, output: Output) -> None:
        for day in days:
            search = Search("t", f"s{day}", 1, "key", (DOCS[0],))
            output.write("impressions", impressions(date(2026, 3, day), [search]))
        output.facts["sources"] = {f"2026-03-{day:02}": "read" for day in days}

    run.execute(run.plan(replace(INGEST_LOGS, reads=(), writes=("impressions",)), {"days": list(days)}), work)
    return run


def test_of_a_run_without_anything_there_is_nothing_to_tell(run: Run) -> None:
    found = history(run)
    assert (found.sources(), found.learned_through()) == ({}, None)
    assert found.learned_tables("learned_term_weights").rows("learned_term_weights") == 0
    assert found.earlier_run().contains == {}
    assert not any(found.earlier_run().made_with.values())


@pytest.mark.parametrize(
    ("days", "test_from", "through"),
    [
        (14, None, date(2026, 3, 5)),
        (20, date(2026, 3, 8), None),
        (20, FIRST, None),
        (20, date(2026, 3, 16), date(2026, 3, 12)),
    ],
)
def test_nothing_is_learned_from_the_test_period(
    run: Run, days: int, test_from: date | None, through: date | None
) -> None:
    assert history(with_days(run, *range(1, days + 1)), test_from=test_from).learned_through() == through


def test_the_days_up_to_one_are_an_input_and_later_ones_are_not(run: Run) -> None:
    found, through = history(with_days(run, 1, 2, 3)), date(2026, 3, 2)
    before = found.shown_until(through)
    with_days(run, 1, 2, 3, 4)
    assert found.shown_until(through) == before
    with_days(run, 1, 3, 4)
    assert found.shown_until(through) != before
    assert found.clicked_until(None) == found.shown_until(None)


def test_from_a_held_day_nothing_is_learned_and_no_period_begins(run: Run) -> None:
    found = history(with_days(run, *range(1, 16)))
    assert found.learned_through() == date(2026, 3, 12)
    held = {"tenant": "t", "date": date(2026, 3, 15), "state": "held", "reasons": ["x"], "rows": 1}
    put(run, "log_days", pa.Table.from_pylist([held], TABLES["log_days"].schema))
    assert list(found.admitted_days()) == [f"2026-03-{day:02}" for day in range(1, 15)]
    assert found.learned_through() == date(2026, 3, 5)


def test_a_day_is_named_by_its_own_files_or_else_by_its_rows(run: Run) -> None:
    found = history(with_days(run, 1, 2))
    assert found.marks() == {"2026-03-01": "read", "2026-03-02": "read"}
    assert found.admission_state().read == {"2026-03-01", "2026-03-02"}
    search = Search("t", "s", 1, "key", (DOCS[0],))
    stage = replace(INGEST_LOGS, reads=(), writes=("impressions",))
    run.execute(run.plan(stage, {}), lambda _tables, output: output.write("impressions", impressions(FIRST, [search])))
    assert found.marks().keys() == {"2026-03-01"} != {"read"}
    assert found.admission_state().read == frozenset()


def test_what_was_read_and_learned_is_that_of_the_latest_night(run: Run) -> None:
    found = history(with_days(run, 1))
    assert found.sources() == {"2026-03-01": "read"}
    with_days(run, 1, 2)
    assert list(found.sources()) == ["2026-03-01", "2026-03-02"]
    given(run, "fit_term_weights", "learned_term_weights")
    assert found.learned_tables("learned_term_weights").parts("learned_term_weights")


def test_pairs_hang_on_the_settings_of_the_stages_before_them(run: Run) -> None:
    found = history(run)
    before = found.earlier_run()
    given(run, "associate", "associations", {"th_click": 0.5})
    assert found.earlier_run().identity == {**before.identity, "associate": {"th_click": 0.5}}
