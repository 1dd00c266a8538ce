"""Arguments and options that several commands share, and what their help looks like."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run folder or s3://bucket/prefix.")]
RunsArgument = Annotated[
    list[str], typer.Argument(metavar="RUN", help="Benchmark or mined runs that provide the training data.")
]
AdapterArgument = Annotated[
    str, typer.Argument(metavar="ADAPTER", help="Output folder of `darklode adapt`, or s3://bucket/prefix.")
]
EncoderOption = Annotated[
    str,
    typer.Option(metavar="NAME", help="Encoder from the settings, or a sentence-transformers model (name or folder)."),
]
OutOption = Annotated[
    str, typer.Option(metavar="FOLDER", help="Output folder or s3://bucket/prefix, used by this job only.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. pool.depth=100. Repeatable."),
]
PresetOption = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="Preset to start from; `darklode doctor` lists the presets."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file with settings and paths; overrides the preset."),
]
ProjectOption = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="Settings file with paths, as written by `darklode init`.")
]

TenantOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Tenant to use; required if the run has several tenants.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object and nothing else (docs/reference/json.md).")
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Validate inputs and exit; exit code 1 if the job could not run.")
]

LOOPBACK = "127.0.0.1"
PortOption = Annotated[
    int, typer.Option(metavar="PORT", min=0, max=65535, help="Port to listen on; 0 picks a free port.")
]
HostOption = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="Address to bind to; a non-loopback address lets other machines connect."),
]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Host name or address under which browsers may reach the server. Repeatable."),
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the page in this machine's browser.")]


def without_types(parameters: list[Any]) -> list[Any]:
    """Parameters whose help shows no Python type: a flag takes no value, and an argument's metavar says what it is."""
    for parameter in parameters:
        if parameter.param_type_name == "argument" or parameter.is_flag:
            parameter.display_type_rich = lambda ctx: ""  # noqa: ARG005 (Typer's)
    return parameters


class CommandGroup(TyperGroup):
    """A group of commands whose help shows no Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options, with --help."""
        return without_types(super().get_params(ctx))


class DefaultCommand(CommandGroup):
    """A group that runs the command `default` if the first argument is not a command name."""

    default: str

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command's name if it was omitted."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class Command(TyperCommand):
    """A command whose usage line writes required arguments as RUN; Typer writes {RUN}. Its help shows no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Arguments and options, with --help."""
        return without_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Parts of the usage line after the command's name."""
        return [re.sub(r"\{(.+?)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


class Application(typer.Typer):
    """A Typer app whose commands are `Command`s."""

    def command(self, name: str | None = None, **attributes: Any) -> Callable[[Any], Any]:
        """Register a function as a command."""
        return super().command(name, **{"cls": Command} | attributes)


def application(**attributes: Any) -> Application:
    """Create the app of one command's file."""
    defaults: dict[str, Any] = {
        "cls": CommandGroup,
        "rich_markup_mode": "rich",
        "add_completion": False,
        "pretty_exceptions_enable": False,
    }
    return Application(**defaults | attributes)
