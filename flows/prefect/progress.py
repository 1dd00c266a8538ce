"""Reporters of a flow's progress."""

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
    """Receives the progress of a flow's stages."""

    def start(self, stage: str, reason: str) -> None:
        """A stage starts, for this reason."""

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        """`done` of `total` units are done; `note` describes the current work."""

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        """A stage is complete; not redone: it was up to date."""

    def table(self, title: str, rows: pa.Table) -> None:
        """Show a table."""

    def say(self, sentence: str) -> None:
        """Show a sentence."""

    def end(self) -> None:
        """The flow has ended, successfully or not."""


class SilentReporter:
    """Discards everything."""

    def start(self, stage: str, reason: str) -> None:
        pass

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        pass

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        pass

    def table(self, title: str, rows: pa.Table) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass

    def end(self) -> None:
        pass


class OnceReporter:
    """Forwards each up-to-date stage, sentence and table only once."""

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
    """Forwards warnings of the pipeline to a reporter."""

    def __init__(self, to: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._to = to

    def emit(self, record: logging.LogRecord) -> None:
        self._to.say(record.getMessage())


@contextmanager
def reporting(to: Reporter) -> Iterator[None]:
    """Send progress of flows inside the block to `to`, with warnings of the pipeline."""
    token, warnings = _current.set(to), _Warnings(to)
    _LOG.addHandler(warnings)
    try:
        yield
    finally:
        to.end()
        _LOG.removeHandler(warnings)
        _current.reset(token)


ROW_UNITS = {
    "adapter_verdict": "verdict",
    "audit_overlap": "overlaps of retriever pairs",
    "audit_retrievers": "retriever metrics",
    "calibration": "comparisons with human labels",
    "click_model": "position propensities",
    "click_prior": "click distributions",
    "day_figures": "daily statistics",
    "day_marks": "day fingerprints",
    "evaluation": "system metrics",
    "evaluation_pairs": "system comparisons",
    "corrected_evaluation": "corrected figures",
    "corrected_audit": "corrected recalls",
    "funnel": "funnel rows",
    "human_labels": "human labels",
    "judge_probe": "kinds of probes",
    "judge_probes": "probes",
    "online": "online metrics",
    "online_pairs": "variant comparisons",
    "reliability": "reliability bins",
}
"""Unit of a table's rows, for stages without a funnel."""


def summary(manifest: Manifest) -> str:
    """Input and output counts of a stage, in one line."""
    if not manifest.funnel:
        counts = {name: sum(part.rows for part in parts) for name, parts in manifest.outputs.items()}
        labels = {name: ROW_UNITS.get(name, f"rows of {name.replace('_', ' ')}") for name in counts}
        return ", ".join(f"{rows:,} {labels[name]}" for name, rows in counts.items() if rows) or "nothing to do"
    first, last = manifest.funnel[0], manifest.funnel[-1]
    return f"{first.rows_in:,} {first.unit_in} → {last.rows_out:,} {last.unit_out}".replace("_", " ")
