"""Entry point of the command `darklode`: what has to be so before anything large is imported."""

import codecs
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from darklode.flows import interrupt

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

INTERRUPTED = 130  # what a shell reports after Ctrl-C
STOPPED = "stopped; the same command goes on from here"


def main() -> NoReturn:
    """Run the command, with Ctrl-C handled from the first moment on, and text in UTF-8."""
    try:
        _open_closed_streams()
        interrupt.listen()
        _require_utf8()
        if sys.__stdout__:
            sys.stdout = _survives_its_reader(sys.stdout.encoding)
        from darklode.flows.cli import main as run

        run()
    except KeyboardInterrupt:
        os.write(2, f"{STOPPED}\n".encode())
        os._exit(INTERRUPTED)


def _open_closed_streams() -> None:
    """Let standard streams that were closed, as by `>&-`, which are None here, lead nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (for as long as the process lasts)


def _require_utf8() -> None:
    """Start again in Python's UTF-8 mode where the locale knows ASCII alone: names, arguments and output are UTF-8.

    Python chooses that mode by itself in the locale C, unless PYTHONUTF8=0 or LC_ALL keep it from doing so.
    """
    if codecs.lookup(sys.getfilesystemencoding()).name == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"  # for the processes that this one starts
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 (itself)


class _Output(io.FileIO):
    """A file descriptor to which nothing is written once its reader is gone, such as `| head`.

    The command goes on to its end, and its exit code tells how that was.
    """

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write, or drop what nobody reads."""
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data) or 0


def _survives_its_reader(encoding: str) -> io.TextIOWrapper:
    output = io.BufferedWriter(_Output(1, "w", closefd=False))
    return io.TextIOWrapper(output, encoding, "backslashreplace", line_buffering=output.isatty())
