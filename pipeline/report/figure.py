"""Figures of the report: a small table with title, note and drawing function."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from darklode.pipeline.report.drawing import Drawing
from darklode.pipeline.report.formatting import UNKNOWN
from darklode.pipeline.report.source import ReportSource


@dataclass(frozen=True)
class Figure:
    """Definition of a figure.

    Attributes:
        key: id on the page and of the Prefect artifact: lower-case letters, digits and dashes.
        note: how to read it.
        table: returns its data; a figure without rows is omitted.
        draw: returns the drawings; without it, the table is shown.
        needs: tables that must exist.
        wide: whether it takes the full page width.
        max_rows: maximum number of rows; the page tells how many are omitted.
        last: whether to show the last rows instead of the first.
        null: text for null values.
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
    """Table function that runs SQL."""
    return lambda source: source.tables.sql(query)


@dataclass(frozen=True)
class FigureSection:
    """A section of figures; `of_labels` marks sections whose figures depend on the label quality."""

    key: str
    title: str
    figures: tuple[Figure, ...]
    of_labels: bool = False


@dataclass(frozen=True)
class FilledFigure:
    """A figure with data: `cut` is the number of omitted rows, `unknown` the omitted columns without values."""

    figure: Figure
    table: pa.Table
    cut: int = 0
    drawings: Sequence[Drawing] = field(default=())
    unknown: Sequence[str] = ()


def fill_figures(figures: Sequence[Figure], source: ReportSource) -> Iterator[FilledFigure]:
    """Fill the figures for which the run has data."""
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
    """Split off columns without values, unless the figure writes unknown values out."""
    empty = [column.null_count == table.num_rows and figure.null != UNKNOWN for column in table.columns]
    with_values = table.select([index for index, none in enumerate(empty) if not none])
    return with_values, [name for name, none in zip(table.column_names, empty, strict=True) if none]


def _cut(table: pa.Table, figure: Figure) -> pa.Table:
    return table.slice(max(0, table.num_rows - figure.max_rows)) if figure.last else table.slice(0, figure.max_rows)
