"""What several commands ask for."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's folder or s3://bucket/prefix.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. pool.depth=100. May be given again."),
]
PresetOption = Annotated[
    str | None, typer.Option("--preset", help="Where the settings start from; `darklode doctor` lists them.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="YAML file with settings and paths; overrides the preset.")
]

TenantOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Whose texts; needed where a run has several tenants.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, and nothing else (docs/reference/json.md).")
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Only look whether anything is in the way: exit code 1 if something is.")
]

LOOPBACK = "127.0.0.1"
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Where the pages are; 0 takes a free port.")]
HostOption = Annotated[str, typer.Option(help="Address to bind to; others than loopback let other machines in.")]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A name under which browsers may reach it. May be given again."),
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the pages in this machine's browser.")]


class DefaultCommand(TyperGroup):
    """What stands in the place of a command's name is an argument of the command `default`."""

    default: str

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name where it was left out."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def application(**attributes: Any) -> typer.Typer:
    """The app of a command's file."""
    usual: dict[str, Any] = {"rich_markup_mode": "rich", "add_completion": False, "pretty_exceptions_enable": False}
    return typer.Typer(**usual | attributes)
