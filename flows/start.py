"""Entry point of the command `darklode`: streams, Ctrl-C and UTF-8 are set up before slow imports."""

import codecs
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from darklode.flows import interrupt

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def main() -> NoReturn:
    """Run the command."""
    try:
        _open_closed_streams()
        interrupt.listen()
        _require_utf8()
        if sys.__stdout__:
            sys.stdout = _ignore_broken_pipe(sys.stdout.encoding)
        from darklode.flows.cli import main as run

        run()
    except KeyboardInterrupt:
        os.write(2, f"{interrupt.INTERRUPTED_MESSAGE}\n".encode())
        os._exit(interrupt.INTERRUPTED_EXIT_CODE)


def _open_closed_streams() -> None:
    """Open standard streams that are closed (None, after `>&-`) on the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (open until the process ends)


def _require_utf8() -> None:
    """Restart in Python's UTF-8 mode if the locale is ASCII only: names, arguments and output are UTF-8.

    Python selects that mode itself in the locale C, unless PYTHONUTF8=0 or LC_ALL prevents it.
    """
    if codecs.lookup(sys.getfilesystemencoding()).name == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"  # inherited by child processes
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 (itself)


class _Output(io.FileIO):
    """Standard output that discards text once its reader has exited, as with `| head`.

    The command then still finishes, with its own exit code.
    """

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write, or discard after a broken pipe."""
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            return super().write(data) or 0


def _ignore_broken_pipe(encoding: str) -> io.TextIOWrapper:
    output = io.BufferedWriter(_Output(1, "w", closefd=False))
    return io.TextIOWrapper(output, encoding, "backslashreplace", line_buffering=output.isatty())
