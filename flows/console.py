"""Terminal output: progress bars and tables, or plain lines if stdout is not a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from unicodedata import category

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from darklode.flows.prefect.progress import summary

if TYPE_CHECKING:
    import pyarrow as pa

    from darklode.pipeline.base.artifacts import Manifest

PIPE_WIDTH = 140  # columns if stdout is not a terminal

console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
errors = Console(stderr=True, highlight=False)

CELL_CHARACTERS = 100
NAME_CHARACTERS = 20  # first columns up to this width are not wrapped
MIDDLE_CHARACTERS = 18  # maximum width of text columns between the first and the last on a narrow terminal
WIDE_COLUMNS = 100
UNPRINTABLE_CATEGORIES = {"Cc", "Cs"}  # control characters and surrogates


class _ProgressWithNotes(Progress):
    """Progress bars with a line below for a note, which would not fit beside a bar."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars and their notes."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["note"]:
                yield Text.from_markup(f"  {task.fields['note']}", style="dim")


class Bars:
    """A progress bar for the current stage; finished stages become lines."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = _ProgressWithNotes(*columns, console=console, transient=True)
        self._task: TaskID | None = None

    def start(self, stage: str, reason: str) -> None:
        """Show a bar without a total."""
        self._drop()
        self._task = self._progress.add_task(stage, total=None, note="")
        self._progress.start()

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        """Update the bar."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total, note=printable(note))

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        """Replace the bar with a summary line."""
        self._drop()
        console.print(format_stage(stage, manifest, redone))

    def end(self) -> None:
        """Remove the bar and restore the cursor."""
        self._drop()

    def _drop(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._progress.stop()
            self._task = None

    def table(self, title: str, rows: pa.Table) -> None:
        """Print it."""
        show(rows, title)

    def say(self, sentence: str) -> None:
        """Print it."""
        console.print(printable(sentence), soft_wrap=True)


class Lines:
    """Plain lines at the start and end of each stage, for logs and pipes."""

    SECONDS = 30

    def __init__(self) -> None:
        self._last_printed = 0.0

    def start(self, stage: str, reason: str) -> None:
        """Print the stage's name and why it runs."""
        self._last_printed = time.monotonic()
        console.print(f"{stage}: {printable(reason)}", soft_wrap=True)

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        """Print the progress, at most every `SECONDS`."""
        if time.monotonic() - self._last_printed > self.SECONDS:
            self._last_printed = time.monotonic()
            share = f"{done:,} of {total:,}" if total else f"{done:,}"
            console.print(f"{stage}: {share}  {printable(note)}".rstrip(), soft_wrap=True)

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        """Print a summary line."""
        console.print(format_stage(stage, manifest, redone), soft_wrap=True)

    def table(self, title: str, rows: pa.Table) -> None:
        """Print it."""
        show(rows, title)

    def say(self, sentence: str) -> None:
        """Print it."""
        console.print(printable(sentence), soft_wrap=True)

    def end(self) -> None:
        """Do nothing: there is no bar."""


def format_stage(stage: str, manifest: Manifest, redone: bool) -> str:
    """Summary line of a finished or cached stage."""
    status = f"[dim]{manifest.seconds:.1f} s[/dim]" if redone else "[dim]up to date[/dim]"
    return f"[green]✓[/green] {stage:<17} {printable(summary(manifest))}  {status}"


def print_error(message: str) -> None:
    """Print an error on stderr, in one line."""
    errors.print("[red]error:[/red]", printable(message), soft_wrap=True)


def reporter() -> Bars | Lines:
    """Bars on a terminal, otherwise plain lines."""
    return Bars() if console.is_terminal else Lines()


def show(rows: pa.Table, title: str) -> None:
    """Print a table; long cells are truncated, numbers right-aligned."""
    import pyarrow as pa

    numbers = {field.name: pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in rows.schema}
    show_rows(rows.to_pylist(), numbers, title)


def show_rows(rows: Iterable[Mapping[str, object]], columns: Mapping[str, bool], title: str) -> None:
    """Print rows as `show` does; `columns` maps column names to whether they are numeric."""
    console.print(f"[bold]{printable(title)}[/bold]", soft_wrap=True)
    table = Table(header_style="bold", box=None, pad_edge=False)
    cells = [[cell(value) for value in row.values()] for row in rows]
    for index, (name, number) in enumerate(columns.items()):
        first, last = index == 0, index == len(columns) - 1
        no_wrap = number or (first and all(len(row[0]) <= NAME_CHARACTERS for row in cells))
        width = None if number or first or last or console.width >= WIDE_COLUMNS else MIDDLE_CHARACTERS
        side: Any = "right" if number else "left"
        table.add_column(printable(name), justify=side, no_wrap=no_wrap, overflow="fold", max_width=width)
    for row in cells:
        table.add_row(*row)
    console.print(table)
    console.print()


def show_records(rows: pa.Table, title: str) -> None:
    """Print each row as a block with one line per column, for long texts."""
    console.print(f"[bold]{printable(title)}[/bold]", soft_wrap=True)
    for row in rows.to_pylist():
        block = Table(box=None, pad_edge=False, show_header=False)
        block.add_column(no_wrap=True, style="dim")
        block.add_column(overflow="fold")
        for name, value in row.items():
            block.add_row(printable(name), cell(value))
        console.print(block)
        console.print()


def cell(value: object) -> str:
    """Format a value for a table cell."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    text = " ".join(text.split())
    return printable(text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…")


def printable(text: str) -> str:
    """Escape untrusted text for rich: no markup and no terminal control characters."""
    return escape(escape_for_terminal(text))


def escape_for_terminal(text: str) -> str:
    """Replace terminal control characters in untrusted text; keeps rich markup."""
    return "".join("�" if category(char) in UNPRINTABLE_CATEGORIES and char != "\n" else char for char in text)
