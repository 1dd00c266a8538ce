"""What Prefect calls a run of Darklode, and what it shows of it: by the run's folder, and by the day."""

import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from darklode.flows.config import read_project
from darklode.pipeline.base.errors import DarklodeError

PARTS = 2
DIGITS = 8


def run_name(parameters: Mapping[str, Any], due: datetime) -> str:
    """A flow run's name: the end of its run's folder, and the days that it reads, or the day on which it was due.

    Args:
        parameters: of the flow.
        due: when the flow run was to start.
    """
    first, last = parameters.get("first"), parameters.get("last")
    days = f"{due:%Y-%m-%d}" if first is None else f"{first}" if first == last else f"{first} to {last}"
    return f"{_last_part(_run_folder(parameters))} {days}"


def _run_folder(parameters: Mapping[str, Any]) -> str:
    """The run's folder; where it is not to be known, what there is: a name must not make a run fail."""
    out, config = parameters.get("out"), parameters.get("config")
    try:
        folder = out or read_project(config).paths.get("mined" if "logs" in parameters else "out")
    except DarklodeError:
        folder = None
    return str(folder or config or "run")


def _last_part(url: str) -> str:
    return "/".join([part for part in url.split("/") if part][-PARTS:])


def artifact_key(url: str) -> str:
    """The key of a run's artifacts: keys are of the whole server, so that it holds the folder's digest, too.

    Prefect takes lower-case letters, digits and dashes.
    """
    words = re.findall(r"[a-z0-9]+", _last_part(url).lower())
    return "-".join([*words, sha256(url.encode()).hexdigest()[:DIGITS]])
