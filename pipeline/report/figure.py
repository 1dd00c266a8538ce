"""A figure: a small table with a title, a sentence on how to read it, and a way to draw it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from darklode.pipeline.report.drawing import Drawing
from darklode.pipeline.report.formatting import UNKNOWN
from darklode.pipeline.report.source import ReportSource


@dataclass(frozen=True)
class Figure:
    """What is shown, and of what.

    Attributes:
        key: names it on the page and among Prefect's artifacts: lower-case letters, digits and dashes.
        title: a few words.
        note: how to read it, in one sentence.
        table: its numbers; without rows there is no figure.
        draw: the drawings of that table; none: the table itself is shown.
        needs: tables that must have been written.
        wide: it takes the page's whole width.
        max_rows: rows shown; the rest is cut, and that is said.
        last: the last rows are shown instead of the first.
        null: how what is not known is written.
    """

    key: str
    title: str
    note: str
    table: Callable[[ReportSource], pa.Table]
    draw: Callable[[pa.Table, ReportSource], Sequence[Drawing]] | None = None
    needs: tuple[str, ...] = ()
    wide: bool = False
    max_rows: int = 60
    last: bool = False
    null: str = "–"


def sql_source(query: str) -> Callable[[ReportSource], pa.Table]:
    """The table of a figure that is a query's answer as it stands."""
    return lambda source: source.tables.sql(query)


@dataclass(frozen=True)
class FigureSection:
    """Figures that belong together; `of_labels`: they are worth what the labels are."""

    key: str
    title: str
    figures: tuple[Figure, ...]
    of_labels: bool = False


@dataclass(frozen=True)
class FilledFigure:
    """A figure of a run: its table, how many rows were cut, and which columns are left out, as nothing is known."""

    figure: Figure
    table: pa.Table
    cut: int = 0
    drawings: Sequence[Drawing] = field(default=())
    unknown: Sequence[str] = ()


def fill_figures(figures: Sequence[Figure], source: ReportSource) -> Iterator[FilledFigure]:
    """The figures for which the run has rows."""
    for figure in figures:
        if not source.written_tables.issuperset(figure.needs):
            continue
        table = figure.table(source)
        if table.num_rows:
            shown_rows = _cut(table, figure)
            drawings = figure.draw(shown_rows, source) if figure.draw else ()
            columns_with_values, unknown = _split_empty_columns(shown_rows, figure)
            yield FilledFigure(figure, columns_with_values, table.num_rows - shown_rows.num_rows, drawings, unknown)


def _split_empty_columns(table: pa.Table, figure: Figure) -> tuple[pa.Table, list[str]]:
    """The columns with a value, and the names of the others; a figure that writes out what is not known keeps all."""
    empty = [column.null_count == table.num_rows and figure.null != UNKNOWN for column in table.columns]
    with_values = table.select([index for index, none in enumerate(empty) if not none])
    return with_values, [name for name, none in zip(table.column_names, empty, strict=True) if none]


def _cut(table: pa.Table, figure: Figure) -> pa.Table:
    return table.slice(max(0, table.num_rows - figure.max_rows)) if figure.last else table.slice(0, figure.max_rows)
