"""The reference page of the commands, from the command line itself: `python -m darklode.flows.commands.reference`."""

import html
import subprocess
import sys
from pathlib import Path

PAGE = "reference/commands.md"
HEAD = """\
# Commands

Made from the command line itself by `python -m darklode.flows.commands.reference`; change the commands, not this page.
`darklode COMMAND --help` says the same.

RUN is a run's folder or an `s3://bucket/prefix`. Every command ends with one of these exit codes:

| code | what it says |
|---|---|
| 0 | all went well |
| 1 | something has to be mended: an input, a run, a server, a model; the message says what and where |
| 2 | the command line or a setting is wrong, in an option or in a file: an unknown name, a value out of bounds |
| 3 | a run may not be published (`validate`), `adapt` hands the base over, an adapter is not for an index |
| 4 | `mine` holds days of the log back; all else is published |
| 130 | Ctrl-C |

An error is a line, or as many as things are wrong (the code is 1 where both 1 and 2 hold); `--debug`, anywhere, shows
the traceback. SIGTERM ends a command by that signal, within seconds: a judge's replies that had come are kept, and the
same command goes on. `serve`, `browse` and `review` end by it as by Ctrl-C, with 0, once what is asked is answered.
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
