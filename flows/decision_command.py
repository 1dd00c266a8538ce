"""The command that decides about held days, in the way in which the run was started."""

import json
import shlex
import sys
from collections.abc import Sequence

from darklode.flows.executor import executor

PARAMETERS = {"--accept-day": "accept_days", "--discard-day": "discard_days"}
"""Parameter of the deployment for each option."""


def command_line() -> str:
    """The `darklode mine` command of this process, or the one that mines from the same settings file."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["mine"]:
        return shlex.join(["darklode", *arguments])
    config = arguments[arguments.index("--config") :][:2] if "--config" in arguments else []
    return shlex.join(["darklode", "mine", *config])


def deployment() -> str | None:
    """FLOW/DEPLOYMENT of the `mine-logs` flow run in this process; None if no deployment started it."""
    if not executor().shows_progress:
        return None
    from prefect.runtime import deployment as running
    from prefect.runtime import flow_run

    return f"{flow_run.flow_name}/{running.name}" if running.name and flow_run.flow_name == "mine-logs" else None


def decision_command(option: str, days: Sequence[str]) -> str:
    """The command that accepts or discards days, ready to copy.

    Args:
        option: `--accept-day` or `--discard-day`.
        days: names of the days.
    """
    if name := deployment():
        parameter = f"{PARAMETERS[option]}={json.dumps(list(days))}"
        return shlex.join(["prefect", "deployment", "run", name, "--param", parameter])
    arguments = [part for day in days for part in (option, day)]
    return f"{command_line()} {shlex.join(arguments)}"
