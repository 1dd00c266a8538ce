"""Who is told how a flow goes on: the terminal, or a worker's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from darklode.pipeline.base.artifacts import Manifest


_LOG = logging.getLogger("darklode")


class Reporter(Protocol):
    """Follows the stages of a flow."""

    def start(self, stage: str, reason: str) -> None:
        """A stage begins, for this reason."""

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        """So much of it is done; the note says what is going on."""

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        """It is complete; not redone means that an earlier result stands."""

    def table(self, title: str, rows: pa.Table) -> None:
        """Something to look at besides."""

    def say(self, sentence: str) -> None:
        """Something to know besides."""

    def end(self) -> None:
        """Nothing more comes, however the flow ended."""


class SilentReporter:
    """Tells nobody."""

    def start(self, stage: str, reason: str) -> None:
        """Say nothing."""

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        """Say nothing."""

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        """Say nothing."""

    def table(self, title: str, rows: pa.Table) -> None:
        """Say nothing."""

    def say(self, sentence: str) -> None:
        """Say nothing."""

    def end(self) -> None:
        """There is nothing to end."""


class OnceReporter:
    """Passes on what is new: a stage that stands, a sentence or a table is not reported again."""

    def __init__(self, to: Reporter) -> None:
        self._to = to
        self._reported: set[tuple[str, str]] = set()

    def start(self, stage: str, reason: str) -> None:
        self._to.start(stage, reason)

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        self._to.progress(stage, done, total, note)

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        if redone or self._new("stage", stage):
            self._to.finish(stage, manifest, redone)

    def table(self, title: str, rows: pa.Table) -> None:
        if self._new("table", title):
            self._to.table(title, rows)

    def say(self, sentence: str) -> None:
        if self._new("sentence", sentence):
            self._to.say(sentence)

    def end(self) -> None:
        self._to.end()

    def _new(self, kind: str, text: str) -> bool:
        is_reported = (kind, text) in self._reported
        self._reported.add((kind, text))
        return not is_reported


_current: ContextVar[Reporter] = ContextVar("reporter", default=SilentReporter())  # noqa: B039 (it holds no state)


def reporter() -> Reporter:
    """The reporter of the running flow."""
    return _current.get()


class _Warnings(logging.Handler):
    """Says what parts of the pipeline warn of, such as a server that is down."""

    def __init__(self, to: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._to = to

    def emit(self, record: logging.LogRecord) -> None:
        self._to.say(record.getMessage())


@contextmanager
def reporting(to: Reporter) -> Iterator[None]:
    """Let flows that run inside the block report to `to`, what the pipeline warns of included."""
    token, warnings = _current.set(to), _Warnings(to)
    _LOG.addHandler(warnings)
    try:
        yield
    finally:
        to.end()
        _LOG.removeHandler(warnings)
        _current.reset(token)


CALLED = {
    "adapter_verdict": "verdict",
    "audit_overlap": "overlaps of two retrievers",
    "audit_retrievers": "figures of retrievers",
    "calibration": "comparisons with people",
    "click_model": "values of places",
    "click_prior": "spreads of clicks",
    "day_figures": "figures of days",
    "day_marks": "marks of days",
    "evaluation": "figures of systems",
    "evaluation_pairs": "comparisons of systems",
    "funnel": "steps and reasons",
    "human_labels": "human labels",
    "online": "shares of searches",
    "online_pairs": "comparisons of arms",
    "reliability": "bins of probabilities",
}
"""Rows of tables whose stages drop nothing and so say no unit, in words."""


def summary(manifest: Manifest) -> str:
    """What went in and came out of a stage, in one line."""
    if not manifest.funnel:
        counts = {name: sum(part.rows for part in parts) for name, parts in manifest.outputs.items()}
        labels = {name: CALLED.get(name, f"rows of {name.replace('_', ' ')}") for name in counts}
        return ", ".join(f"{rows:,} {labels[name]}" for name, rows in counts.items() if rows) or "nothing to do"
    first, last = manifest.funnel[0], manifest.funnel[-1]
    return f"{first.rows_in:,} {first.unit_in} → {last.rows_out:,} {last.unit_out}".replace("_", " ")
