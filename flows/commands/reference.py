"""The reference page of the commands, from the command line itself: `python -m darklode.flows.commands.reference`."""

import html
import subprocess
import sys
from pathlib import Path

PAGE = "commands.md"
HEAD = """\
# Commands

Made from the command line itself by `python -m darklode.flows.commands.reference`; change the commands, not this page.
`darklode COMMAND --help` says the same.

RUN is a run's folder or an `s3://bucket/prefix`. Every command ends with exit code 0 where all went well, 1 where
something has to be mended (it says what and where), 2 where the command line itself is wrong, 3 where `validate` finds
that a run may not be published or `adapt` hands the base over, 4 where `mine` holds days of the log back, and 130 after
Ctrl-C. An error is a line, or as many as things are wrong; `--debug`, anywhere, shows the traceback. SIGTERM ends it by
that signal, within seconds: a judge's replies that had come are kept, and the same command goes on.
"""


def commands_markdown() -> str:
    """Every command with its arguments and options, as Markdown; Typer writes it."""
    made = subprocess.run(
        [
            sys.executable,
            "-m",
            "typer",
            "darklode.flows.cli",
            "utils",
            "docs",
            "--name",
            "darklode",
            "--title",
            "Commands",
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    _, _, commands = html.unescape(made.stdout).partition("\n## ")
    return f"{HEAD}\n## {commands.strip()}\n"


if __name__ == "__main__":
    Path("docs", PAGE).write_text(commands_markdown(), encoding="utf-8")
