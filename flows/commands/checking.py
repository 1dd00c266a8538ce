"""Checks that a command makes before its job starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import typer

from darklode.flows.console import console, print_error, printable
from darklode.pipeline.base.errors import SettingsError

if TYPE_CHECKING:
    from darklode.flows.preflight import Check
    from darklode.schemas.settings import Settings


def settings_for(load: Callable[[], Settings], inputs: Sequence[str], out: str, *, mined: bool) -> Settings:
    """Load a command's settings.

    Raises:
        DarklodeError: invalid settings; problems with the paths are reported together with them.
    """
    try:
        return load()
    except SettingsError as error:
        from darklode.flows import preflight

        problems = preflight.run_checks(preflight.path_checks(inputs, out, mined=mined))
        if problems.errors:
            preflight.CheckResults([error, *problems.errors], ()).raise_errors()
        raise


def check_before(checks: Callable[[ModuleType], Sequence[Check]], *, only: bool, quiet: bool = False) -> bool:
    """Run a command's checks and print their findings; returns whether to continue.

    Args:
        checks: returns the checks, given the module `darklode.flows.preflight` (imported late: it loads slowly).
        only: stop after the checks, with exit code 1 if one failed.
        quiet: print errors only.

    Raises:
        DarklodeError: a check failed and `only` is False.
    """
    if not quiet:
        console.print("[dim]Checking inputs, settings, servers and models.[/dim]")
    from darklode.flows import preflight

    results = preflight.run_checks(checks(preflight))
    for note in () if quiet else results.notes:
        console.print(f"[yellow]note:[/yellow] {printable(note)}", soft_wrap=True)
    if not only:
        results.raise_errors()
        return True
    for message in (message for error in results.errors for message in error.each):
        print_error(message)
    if results.errors:
        raise typer.Exit(1)
    console.print("All checks passed.")
    return False
