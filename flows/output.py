"""A command's results: printed tables and sentences, or one JSON object on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from darklode.flows.console import console, printable, show, show_rows

if TYPE_CHECKING:
    import pyarrow as pa

Rows = Sequence[Mapping[str, Any]]


class Answer(Protocol):
    """Receives a command's results; JSON uses the keys, the terminal the titles and sentences."""

    def table(self, key: str, rows: pa.Table, title: str, nothing: str | None = None) -> None:
        """Add a table; if it is empty and `nothing` is not None, the terminal prints `nothing` instead."""

    def rows(self, key: str, rows: Rows, columns: Mapping[str, bool], title: str) -> None:
        """Add rows; `columns` maps column names to whether they are numeric."""

    def fact(self, key: str, value: Any, sentence: str | None = None) -> None:
        """Add a value; the terminal prints `sentence`, if any."""

    def say(self, sentence: str, *, warning: bool = False) -> None:
        """Add a note; JSON collects them under `notes`."""


FINDING_COLUMNS = {"subject": False, "fits": False, "detail": False}
"""Columns of the findings of `adapt check` and `index check`."""


class PrintedAnswer:
    """Prints results as they arrive."""

    def table(self, key: str, rows: pa.Table, title: str, nothing: str | None = None) -> None:
        if rows.num_rows or nothing is None:
            show(rows, title)
        elif nothing:
            console.print(f"{nothing}\n")

    def rows(self, key: str, rows: Rows, columns: Mapping[str, bool], title: str) -> None:
        show_rows(rows, columns, title)

    def fact(self, key: str, value: Any, sentence: str | None = None) -> None:
        if sentence:
            self.say(sentence)

    def say(self, sentence: str, *, warning: bool = False) -> None:
        text = printable(sentence)
        console.print(f"[yellow]{text}[/yellow]" if warning else text, soft_wrap=True)


class CollectedAnswer:
    """Collects results for one JSON object."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.tables: dict[str, pa.Table] = {}

    def table(self, key: str, rows: pa.Table, title: str, nothing: str | None = None) -> None:
        self.tables[key] = rows
        self.values[key] = None  # its place; `tables` holds the rows

    def rows(self, key: str, rows: Rows, columns: Mapping[str, bool], title: str) -> None:
        self.values[key] = list(rows)

    def fact(self, key: str, value: Any, sentence: str | None = None) -> None:
        self.values[key] = value

    def say(self, sentence: str, *, warning: bool = False) -> None:
        self.values.setdefault("notes", []).append(sentence)


@contextmanager
def answering(as_json: bool) -> Iterator[Answer]:
    """Context of a command's results; JSON is printed at the end of the block, also after an error if not empty."""
    if not as_json:
        yield PrintedAnswer()
        return
    collected = CollectedAnswer()
    try:
        yield collected
    finally:
        if collected.values:
            values = collected.values | {key: rows.to_pylist() for key, rows in collected.tables.items()}
            sys.stdout.write(json.dumps(_to_plain(values), indent=1, ensure_ascii=False, default=str) + "\n")


def _to_plain(value: Any) -> Any:
    """Convert to JSON values; NaN and infinity become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    return [_to_plain(item) for item in value] if isinstance(value, list | tuple) else value
