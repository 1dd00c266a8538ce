"""Progress of jobs in a notebook or terminal: one tqdm bar for the current stage."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from darklode.pipeline.base.artifacts import Manifest


class BarReporter:
    """Shows a bar for the current stage, and keeps the sentences and tables that a job reports.

    Args:
        silent: show nothing. Nothing is shown, either, in a script whose standard error is not a terminal.
    """

    def __init__(self, *, silent: bool) -> None:
        self.sentences: list[str] = []
        self.tables: dict[str, pa.Table] = {}
        self._bars = None if silent or not (_is_notebook() or sys.stderr.isatty()) else _bar_class()
        self._bar: Any = None

    def start(self, stage: str, reason: str) -> None:
        """Show a bar without a total."""
        self.end()
        if self._bars:
            self._bar = self._bars(desc=stage, leave=False)

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        """Move the bar."""
        if self._bar is not None:
            if total != self._bar.total:
                self._bar.reset(total)
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(max(0, done - self._bar.n))

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        """Remove the bar."""
        self.end()

    def table(self, title: str, rows: pa.Table) -> None:
        """Keep it."""
        self.tables[title] = rows

    def say(self, sentence: str) -> None:
        """Keep it, and show it."""
        self.sentences.append(sentence)
        if self._bars:
            self._bars.write(sentence)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _bar_class() -> Any:
    with warnings.catch_warnings():  # tqdm warns in a notebook without ipywidgets, and then draws bars of text
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    return tqdm


def _is_notebook() -> bool:
    """Whether this process is a Jupyter kernel, whose standard error is no terminal but can show bars."""
    return "ipykernel.kernelapp" in sys.modules
