"""darklode: the command line."""

import ast
import atexit
import os
import sys
from collections.abc import Iterator, Mapping
from copy import copy
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from darklode.flows import interrupt
from darklode.flows.commands.options import CommandGroup, application
from darklode.flows.console import console, errors
from darklode.flows.interrupt import INTERRUPTED_EXIT_CODE, INTERRUPTED_MESSAGE

COMMAND_GROUPS = {
    "Start": "demo init build report browse doctor",
    "Build": "mine generate judge export",
    "Inspect": "list status search query pool audit diff",
    "Measure": "review validate evaluate",
    "Train": "adapt adapters train-towers train-reranker entropy laws",
    "Serve": "index serve",
    "Operate": "deploy nights verify cache plan-scale",
}
"""Panels of the help, and their commands; the first has those that a newcomer needs."""
COMMANDS = " ".join(COMMAND_GROUPS.values()).split()
"""Files of `flows/commands`, in the order of the help."""
FIRST_COMMANDS = {
    "darklode demo": "Build the bundled sample into the folder darklode-demo.",
    "darklode init": "Write darklode.yaml for your own data: `build --config darklode.yaml`.",
    "darklode browse darklode-demo": "Explore a run in the browser; `darklode report RUN` writes one page.",
}
"""What `darklode` without arguments suggests."""


class CommandFiles(Mapping[str, Any]):
    """The commands by name; a command's file is imported on access."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _load_command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyCommands(CommandGroup):
    """A group that imports a command's file only when it is called, so that other commands start quickly."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = CommandFiles()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (click's)
        """Names of the commands."""
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the commands without importing them."""
        listing = copy(self)
        listing.commands = {
            name: TyperCommand(name, help=_command_help(name), rich_help_panel=panel)
            for panel, names in COMMAND_GROUPS.items()
            for name in names.split()
        }
        super(LazyCommands, listing).format_help(ctx, formatter)


@cache
def _load_command(name: str) -> Any:
    command = typer.main.get_command(import_module(f"darklode.flows.commands.{_file(name)}").app)
    command.name = name
    return command


def _file(name: str) -> str:
    return name.replace("-", "_")


def _command_help(name: str) -> str | None:
    """Docstring of a command, read from its source."""
    source = files("darklode.flows.commands").joinpath(f"{_file(name)}.py").read_text(encoding="utf-8")
    functions = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name in {_file(name), f"{name}_"}
    )
    return ast.get_docstring(next(functions))


DEBUG = "--debug"
USAGE_EXIT_CODE = 2
"""Exit code of an invalid command line; a missing command is one, as in Typer's own groups."""

app = application(
    name="darklode",
    cls=LazyCommands,
    help="Build labelled retrieval data from documents, query logs and clicks.\n\n"
    "Start with `darklode demo`, or with `darklode build --docs DOCS --queries QUERIES --out RUN` for your own data. "
    "Running a command again with the same --out recomputes only what changed.",
    add_completion=True,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Print tracebacks of errors; valid with every command.")] = False,  # noqa: ARG001 (see `run_guarded`)
) -> None:
    """Handle the options that come before a command."""
    if show_version:
        from importlib.metadata import version

        console.print(f"darklode {version('darklode')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        errors.print("Build labelled retrieval data from documents, query logs and clicks. Try:\n")
        for command, effect in FIRST_COMMANDS.items():
            errors.print(f"  [bold]{command}[/bold]\n      {effect}", soft_wrap=True)
        errors.print("\nAll commands: darklode --help")
        raise typer.Exit(USAGE_EXIT_CODE)


def run_guarded() -> int:
    """Run the command and print any error on stderr; returns the exit code."""
    interrupt.listen()
    arguments = sys.argv[1:]
    try:
        app(args=[argument for argument in arguments if argument != DEBUG])
    except Exception as error:
        from darklode.flows.error_messages import explain

        return explain(error, debug=DEBUG in arguments)
    except SystemExit as stop:  # typer exits this way after printing usage errors
        if stop.code == INTERRUPTED_EXIT_CODE:
            errors.print(INTERRUPTED_MESSAGE)
        return stop.code if isinstance(stop.code, int) else 1
    return 0


def main() -> NoReturn:
    """Run the command and exit without interpreter shutdown.

    Prefect's threads would still use modules during shutdown, and DuckDB would print errors about it.
    """
    code = run_guarded()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
