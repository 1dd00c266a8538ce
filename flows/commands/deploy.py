"""darklode deploy: deploy the jobs of a settings file to a Prefect server."""

import shlex
from typing import Annotated

import typer

from darklode.flows.commands.options import ProjectOption, application
from darklode.flows.console import console, printable
from darklode.pipeline.base.errors import MissingPart

app = application()

NO_SERVER_MESSAGE = (
    "deployments need a running Prefect server: start one with `prefect server start`, then "
    "`export PREFECT_API_URL=http://127.0.0.1:4200/api`"
)


@app.command(epilog='Example: darklode deploy --config mine.yaml --cron "0 3 * * *" --timezone Europe/Berlin')
def deploy(
    config: ProjectOption,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the deployments; default: the settings file's name.")
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="CRON", help="Cron schedule of mine-logs, or of build-benchmark if there is no log; default: none."
        ),
    ] = None,
    timezone: Annotated[str, typer.Option(metavar="ZONE", help="Time zone of --cron, e.g. Europe/Berlin.")] = "UTC",
    pool: Annotated[
        str, typer.Option(metavar="NAME", help="Prefect work pool; created if it does not exist.")
    ] = "local",
) -> None:
    """Create or replace the Prefect deployments of a settings file."""
    from darklode.flows.config import load_settings, read_project
    from darklode.flows.prefect.server import configured_server

    load_settings(read_project(config).preset, config)  # a wrong file is reported before a missing server
    server = configured_server()
    if server is None:
        raise MissingPart(NO_SERVER_MESSAGE)
    server.wait()
    from darklode.flows.prefect import deployments

    deployed = list(deployments.deploy(config, name or config.stem, pool, cron, timezone))
    for deployment in deployed:
        console.print(f"{printable(deployment.name)}  {printable(deployment.cron) or 'on demand'}", soft_wrap=True)
    console.print("Next, start a worker on a machine that has the file's paths, then a first run:")
    for command in (["worker", "start", "--pool", pool], ["deployment", "run", deployed[-1].name, "--watch"]):
        console.print(f"  {printable(shlex.join(['prefect', *command]))}", soft_wrap=True)
