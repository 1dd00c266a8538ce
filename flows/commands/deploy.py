"""darklode deploy: the jobs of a settings file as deployments on one's own Prefect server."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from darklode.flows.commands.options import application
from darklode.flows.console import console, printable
from darklode.pipeline.base.errors import MissingPart

app = application()

NO_SERVER = (
    "deployments need a Prefect server that stays: start one with `prefect server start`, then "
    "`export PREFECT_API_URL=http://127.0.0.1:4200/api`"
)


@app.command(epilog='Example: darklode deploy --config mine.yaml --cron "0 3 * * *" --timezone Europe/Berlin')
def deploy(
    config: Annotated[Path, typer.Option(help="Settings file with paths, as `darklode init` writes it.")],
    name: Annotated[str | None, typer.Option(help="The deployments' name; by default the file's.")] = None,
    cron: Annotated[
        str | None, typer.Option(help="When the log is mined (without a log: the benchmark built), as cron says it.")
    ] = None,
    timezone: Annotated[str, typer.Option(help="In which the time is meant, such as Europe/Berlin.")] = "UTC",
    pool: Annotated[str, typer.Option(help="Prefect's work pool; made where there is none of the name.")] = "local",
) -> None:
    """Make Prefect deployments of a settings file; again, they are replaced."""
    from darklode.flows.config import load_settings, read_project
    from darklode.flows.prefect.server import configured_server

    load_settings(read_project(config).preset, config)  # a wrong file is reported before a missing server
    server = configured_server()
    if server is None:
        raise MissingPart(NO_SERVER)
    server.wait()
    from darklode.flows.prefect import deployments

    deployed = list(deployments.deploy(config, name or config.stem, pool, cron, timezone))
    for deployment in deployed:
        console.print(f"{printable(deployment.name)}  {printable(deployment.cron) or 'when asked'}", soft_wrap=True)
    console.print("Next, a worker where the paths of the file are, and a first run:")
    for command in (["worker", "start", "--pool", pool], ["deployment", "run", deployed[-1].name, "--watch"]):
        console.print(f"  {printable(shlex.join(['prefect', *command]))}", soft_wrap=True)
