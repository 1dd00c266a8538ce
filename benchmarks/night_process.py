"""Nights of mining in forked processes that are killed, or paused, at a chosen moment; for `soak`.

A moment is the n-th of Python's audit events (PEP 578), such as opening or renaming a file.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from ast import literal_eval
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HELD, REFUSED, FAILED, UNEXPECTED = 4, 5, 6, 7
"""Exit codes of a night that holds days, is refused because another one runs, fails on a file, or has a bug."""

Night = Callable[[], None]


@dataclass(frozen=True)
class NightEnd:
    """How a night's process ended: exit code or minus the signal, its message, and the number of audit events."""

    code: int
    message: str
    events: int


class NightProcess:
    """A night in a fork of this process.

    Args:
        work: the night.
        kill_at: number of the audit event at which it kills itself; 0: never.
        pause_below: folder; at the first file that it opens there it waits until `resume`.
    """

    def __init__(self, work: Night, *, kill_at: int = 0, pause_below: Path | None = None) -> None:
        sys.stdout.flush()
        self._report, report = os.pipe()
        resume, self._resume = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._report)
            os.close(self._resume)
            _watch_events(report, resume, kill_at, pause_below)
            os._exit(_run_to_its_end(work, report))
        os.close(report)
        os.close(resume)

    def wait_for_pause(self) -> bool:
        """Wait until it pauses; False if it ended before."""
        return os.read(self._report, 1) == b"P"

    def resume(self) -> None:
        """Let it continue."""
        os.write(self._resume, b"R")

    def kill(self) -> None:
        """Kill it."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> NightEnd:
        """Wait for its end."""
        with os.fdopen(self._report, "rb") as pipe:
            text = pipe.read().decode(errors="replace").lstrip("P")
        _, status = os.waitpid(self.pid, 0)
        os.close(self._resume)
        message, _, events = text.rpartition("\0")
        return NightEnd(os.waitstatus_to_exitcode(status), message, int(events or 0))


_events = 0


def _watch_events(report: int, resume: int, kill_at: int, pause_below: Path | None) -> None:
    """Count this process's audit events, and kill or pause it."""
    pausing = [str(pause_below)] if pause_below else []

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        global _events  # noqa: PLW0603 (an audit hook cannot be removed, and has no other place for its state)
        _events += 1
        if _events == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if pausing and event == "open" and str(arguments[0]).startswith(pausing[0]):
            pausing.clear()
            os.write(report, b"P")
            os.read(resume, 1)

    sys.addaudithook(count)


def _run_to_its_end(work: Night, report: int) -> int:
    """Run a night, write its message and its number of events to the pipe; returns the exit code."""
    from darklode.pipeline.base.errors import ArtifactError, DarklodeError, HeldBack

    message, code = "", 0
    try:
        work()
    except HeldBack as error:
        message, code = "\n".join(error.days), HELD
    except ArtifactError as error:
        message, code = str(error), REFUSED if "is writing to" in str(error) else UNEXPECTED
    except DarklodeError as error:
        message, code = str(error), FAILED
    except BaseException:
        message, code = traceback.format_exc(), UNEXPECTED
    os.write(report, f"{message[-30_000:]}\0{_events}".encode())
    return code


def in_child(work: Callable[[], dict[str, int]]) -> dict[str, int]:
    """The result of a call in a fork; threads that it starts would make later forks unsafe."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, repr(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    result: dict[str, int] = literal_eval(text)
    return result
