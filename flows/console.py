"""What a person at a terminal sees: progress bars, tables, and plain lines where there is no terminal."""

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

PIPE_WIDTH = 140  # columns where there is no terminal to ask

console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
errors = Console(stderr=True, highlight=False)

CELL_CHARACTERS = 100
NAME_CHARACTERS = 20  # of a row's name, which stands in its first column: so long it is not broken
MIDDLE_CHARACTERS = 18  # of a text between others where the terminal is not wide: the last one takes what is left
WIDE = 100
UNPRINTABLE = {"Cc", "Cs"}  # control characters, and the halves of characters that no encoding can hold


class _NotesBelow(Progress):
    """Bars whose notes stand below them, where a terminal has room for a whole sentence."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, then what is said of each."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["note"]:
                yield Text.from_markup(f"  {task.fields['note']}", style="dim")


class Bars:
    """One progress bar per stage, with counts and time left."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = _NotesBelow(*columns, console=console, transient=True)
        self._task: TaskID | None = None

    def start(self, stage: str, reason: str) -> None:
        """Show a bar; its total is not known yet."""
        self._drop()
        self._task = self._progress.add_task(stage, total=None, note="")
        self._progress.start()

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total, note=printable(note))

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        """Replace the bar by a line."""
        self._drop()
        console.print(line(stage, manifest, redone))

    def end(self) -> None:
        """Leave the terminal as it was: no bar, and a cursor."""
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
    """One line when a stage starts and one when it ends, for logs and pipes."""

    SECONDS = 30

    def __init__(self) -> None:
        self._last_printed = 0.0

    def start(self, stage: str, reason: str) -> None:
        """Say that it starts, and why."""
        self._last_printed = time.monotonic()
        console.print(f"{stage}: {printable(reason)}", soft_wrap=True)

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        """Say how far it is, not more often than every half a minute."""
        if time.monotonic() - self._last_printed > self.SECONDS:
            self._last_printed = time.monotonic()
            share = f"{done:,} of {total:,}" if total else f"{done:,}"
            console.print(f"{stage}: {share}  {printable(note)}".rstrip(), soft_wrap=True)

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        """Say what came out."""
        console.print(line(stage, manifest, redone), soft_wrap=True)

    def table(self, title: str, rows: pa.Table) -> None:
        """Print it."""
        show(rows, title)

    def say(self, sentence: str) -> None:
        """Print it."""
        console.print(printable(sentence), soft_wrap=True)

    def end(self) -> None:
        """There is nothing to end."""


def line(stage: str, manifest: Manifest, redone: bool) -> str:
    """A finished stage in one line."""
    how = f"[dim]{manifest.seconds:.1f} s[/dim]" if redone else "[dim]stands[/dim]"
    return f"[green]✓[/green] {stage:<17} {printable(summary(manifest))}  {how}"


def refuse(message: str) -> None:
    """Say on stderr what is wrong, in one line."""
    errors.print("[red]error:[/red]", printable(message), soft_wrap=True)


def reporter() -> Bars | Lines:
    """Bars on a terminal, lines elsewhere."""
    return Bars() if console.is_terminal else Lines()


def show(rows: pa.Table, title: str) -> None:
    """Print a table; long cells are cut, numbers stand to the right."""
    import pyarrow as pa

    numbers = {field.name: pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in rows.schema}
    show_rows(rows.to_pylist(), numbers, title)


def show_rows(rows: Iterable[Mapping[str, object]], columns: Mapping[str, bool], title: str) -> None:
    """Print rows as `show` does; `columns` says by name which hold numbers."""
    console.print(f"[bold]{printable(title)}[/bold]", soft_wrap=True)
    table = Table(header_style="bold", box=None, pad_edge=False)
    cells = [[cell(value) for value in row.values()] for row in rows]
    for index, (name, number) in enumerate(columns.items()):
        first, last = index == 0, index == len(columns) - 1
        no_wrap = number or (first and all(len(row[0]) <= NAME_CHARACTERS for row in cells))
        width = None if number or first or last or console.width >= WIDE else MIDDLE_CHARACTERS
        side: Any = "right" if number else "left"
        table.add_column(printable(name), justify=side, no_wrap=no_wrap, overflow="fold", max_width=width)
    for row in cells:
        table.add_row(*row)
    console.print(table)
    console.print()


def show_upright(rows: pa.Table, title: str) -> None:
    """Print each row as a block, a line or more a column: for texts, which narrow columns would break."""
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
    """A value as a person reads it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    text = " ".join(text.split())
    return printable(text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…")


def printable(text: str) -> str:
    """A text from outside for rich: its brackets are no markup, and it cannot steer the terminal."""
    return escape(escape_for_terminal(text))


def escape_for_terminal(text: str) -> str:
    """A text from outside that cannot steer the terminal; its brackets stand."""
    return "".join("�" if category(char) in UNPRINTABLE and char != "\n" else char for char in text)
