"""The first seconds of a command: something on the screen at once, then all that is in the way of its work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import typer

from darklode.flows.console import console, printable, refuse
from darklode.pipeline.base.errors import SettingsError

if TYPE_CHECKING:
    from darklode.flows.preflight import Check
    from darklode.schemas.settings import Settings


def settings_for(load: Callable[[], Settings], inputs: Sequence[str], out: str, *, mined: bool) -> Settings:
    """The settings of a command.

    Raises:
        DarklodeError: they are wrong; what is wrong with the paths is said with them.
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
    """Make the checks of a command, and say what they find; whether to go on.

    Args:
        checks: gives them; its argument is `darklode.flows.preflight`, which takes a moment to load.
        only: stop here, with exit code 1 where something is in the way.
        quiet: print nothing but what is in the way.

    Raises:
        DarklodeError: something is in the way.
    """
    if not quiet:
        console.print("[dim]Looking at inputs, settings, servers and models.[/dim]")
    from darklode.flows import preflight

    problems = preflight.run_checks(checks(preflight))
    for note in () if quiet else problems.notes:
        console.print(f"[yellow]note:[/yellow] {printable(note)}", soft_wrap=True)
    if not only:
        problems.raise_errors()
        return True
    for message in (message for error in problems.errors for message in error.each):
        refuse(message)
    if problems.errors:
        raise typer.Exit(1)
    console.print("Nothing is in the way.")
    return False
