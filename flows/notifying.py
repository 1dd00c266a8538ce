"""Who is told that a run failed or was held back: a webhook of the user's, named by the environment alone."""

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.logging import get_logger
from prefect.utilities.urls import url_for

VARIABLE = "DARKLODE_WEBHOOK"
"""Its address holds a secret mostly: it is read when it is needed, never stored, and never part of a message."""

SECONDS = 10.0


def notify(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Post what happened as JSON to the address in DARKLODE_WEBHOOK; whoever does not answer is let alone.

    Args:
        flow: the flow.
        flow_run: its run.
        state: how it ended; held back is the name of a failed one.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        return
    try:
        if not address.startswith(("https://", "http://")):
            raise ValueError("no http address")
        body = json.dumps(told(flow, flow_run, state)).encode()
        asked = Request(address, body, {"Content-Type": "application/json"})  # noqa: S310 (http or https)
        with urlopen(asked, timeout=SECONDS):  # noqa: S310
            pass
    except (OSError, HTTPException, ValueError) as error:
        status = getattr(error, "code", "")
        get_logger("darklode").warning("%s was not told: %s %s", VARIABLE, type(error).__name__, status)


def told(flow: Flow[..., Any], run: FlowRun, state: State[Any]) -> dict[str, str]:
    """What is posted. `text` is all of it in a sentence, which chat programs show as it is."""
    how, message = str(state.name).lower(), state.message or ""
    page = url_for(run) if run.deployment_id else None  # a server that lives with a command is gone when this is read
    found = {"flow": flow.name, "run": run.name, "state": how, "message": message, "page": page or ""}
    return {"text": f"{flow.name} {run.name} {how}: {message} {found['page']}".rstrip()} | found
