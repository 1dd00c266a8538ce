"""What a command answers: tables and sentences for a person, or the same as one JSON object on stdout."""

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
    """Where a command puts what it found; the keys are what JSON has, the titles what a person reads."""

    def table(self, key: str, rows: pa.Table, title: str, nothing: str | None = None) -> None:
        """A table; `nothing` is said in its place to a person where it has no rows, unless it is None."""

    def rows(self, key: str, rows: Rows, columns: Mapping[str, bool], title: str) -> None:
        """Rows; `columns` says by name which hold numbers."""

    def fact(self, key: str, value: Any, sentence: str | None = None) -> None:
        """A value, and what a person is told of it."""

    def say(self, sentence: str, *, warning: bool = False) -> None:
        """Something to know besides; JSON has these in `notes`."""


class AnswerValue:
    """Prints each thing as it comes."""

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
    """Keeps everything for one JSON object."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def table(self, key: str, rows: pa.Table, title: str, nothing: str | None = None) -> None:
        self.values[key] = rows.to_pylist()

    def rows(self, key: str, rows: Rows, columns: Mapping[str, bool], title: str) -> None:
        self.values[key] = list(rows)

    def fact(self, key: str, value: Any, sentence: str | None = None) -> None:
        self.values[key] = value

    def say(self, sentence: str, *, warning: bool = False) -> None:
        self.values.setdefault("notes", []).append(sentence)


@contextmanager
def answering(as_json: bool) -> Iterator[Answer]:
    """Where to put an answer; as JSON it is printed when the block ends, by an error too, if there is any of it."""
    if not as_json:
        yield AnswerValue()
        return
    collected = CollectedAnswer()
    try:
        yield collected
    finally:
        if collected.values:
            sys.stdout.write(json.dumps(_to_plain(collected.values), indent=1, ensure_ascii=False, default=str) + "\n")


def _to_plain(value: Any) -> Any:
    """A value as JSON has it: what is no number is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    return [_to_plain(item) for item in value] if isinstance(value, list | tuple) else value
