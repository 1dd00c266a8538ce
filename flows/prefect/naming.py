"""Names of flow runs and keys of artifacts in Prefect, from the run's folder and the day."""

import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from darklode.flows.config import read_project
from darklode.pipeline.base.errors import DarklodeError

NAME_PARTS = 2  # last parts of the folder in a name
HASH_DIGITS = 8  # of the folder's hash in a key


def run_name(parameters: Mapping[str, Any], due: datetime) -> str:
    """A flow run's name: the last parts of the run's folder, and the days that it reads, or the scheduled day.

    Args:
        parameters: parameters of the flow.
        due: scheduled start.
    """
    first, last = parameters.get("first"), parameters.get("last")
    days = f"{due:%Y-%m-%d}" if first is None else f"{first}" if first == last else f"{first} to {last}"
    return f"{_last_part(_run_folder(parameters))} {days}"


def _run_folder(parameters: Mapping[str, Any]) -> str:
    """The run's folder, or the settings file if that is invalid: naming must not make a run fail."""
    out, config = parameters.get("out"), parameters.get("config")
    try:
        folder = out or read_project(config).paths.get("mined" if "logs" in parameters else "out")
    except DarklodeError:
        folder = None
    return str(folder or config or "run")


def _last_part(url: str) -> str:
    return "/".join([part for part in url.split("/") if part][-NAME_PARTS:])


def artifact_key(url: str) -> str:
    """The key of a run's artifacts; it contains a hash of the folder, since keys are unique per server.

    Prefect allows lower-case letters, digits and dashes.
    """
    words = re.findall(r"[a-z0-9]+", _last_part(url).lower())
    return "-".join([*words, sha256(url.encode()).hexdigest()[:HASH_DIGITS]])
