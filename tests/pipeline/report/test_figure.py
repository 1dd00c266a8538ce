"""Figures: which of them a run has, and which of their rows are shown."""

from dataclasses import replace

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.drawing import Facts
from darklode.pipeline.report.figure import Figure, FilledFigure, fill_figures
from darklode.pipeline.report.formatting import UNKNOWN
from helpers.report_runs import opened, random_run

COUNTS = Figure("counts", "Counts", "From 0 on.", lambda _: pa.table({"n": range(5)}), max_rows=3)


def fill(run: Run, *figures: Figure) -> list[FilledFigure]:
    with opened(run) as given:
        return list(fill_figures(figures, given))


@pytest.mark.parametrize(("last", "kept"), [(False, [0, 1, 2]), (True, [2, 3, 4])])
def test_a_long_table_keeps_its_beginning_or_its_end_and_counts_the_rest(run: Run, last: bool, kept: list[int]) -> None:
    (one,) = fill(run, replace(COUNTS, last=last))
    assert (one.table["n"].to_pylist(), one.cut) == (kept, 2)
    (whole,) = fill(run, replace(COUNTS, last=last, max_rows=5))
    assert (whole.table.num_rows, whole.cut) == (5, 0)


def test_what_is_drawn_is_what_is_kept(run: Run) -> None:
    drawn = replace(COUNTS, draw=lambda table, _: [Facts([("rows", str(table.num_rows))])])
    (one,) = fill(run, drawn)
    assert one.drawings == [Facts([("rows", "3")])]
    assert fill(run, COUNTS)[0].drawings == ()


def test_columns_of_which_nothing_is_known_go_and_are_named(run: Run) -> None:
    partly = pa.table({"n": [1, 2], "kappa": pa.array([None, None], pa.float64()), "share": [None, 0.5]})
    (one,) = fill(run, replace(COUNTS, table=lambda _: partly))
    assert (one.table.column_names, list(one.unknown)) == (["n", "share"], ["kappa"])
    (said,) = fill(run, replace(COUNTS, table=lambda _: partly, null=UNKNOWN))
    assert (said.table.column_names, list(said.unknown)) == (["n", "kappa", "share"], [])


def test_without_rows_or_without_its_tables_there_is_no_figure(run: Run) -> None:
    empty = replace(COUNTS, table=lambda _: pa.table({"n": pa.array([], pa.int64())}))
    asked: list[str] = []

    def table(_given: object) -> pa.Table:
        asked.append("asked")
        return COUNTS.table(_given)  # type: ignore[arg-type]

    judged = replace(COUNTS, table=table, needs=("queries", "verdicts"))
    assert fill(run, empty, judged) == []
    assert not asked, "a figure whose tables are not there is not computed"
    assert len(fill(random_run(run.store.url, 1), judged)) == 1
