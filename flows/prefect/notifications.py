"""Who is told that a run failed or was held back: a webhook of the user's, named by the environment alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.schemas.objects import FlowRun, State

VARIABLE = "DARKLODE_WEBHOOK"
"""Its address holds a secret mostly: it is read when it is needed, never stored, and never part of a message."""

SECONDS = 10.0


def notify(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Post how a flow of Prefect's ended; see `post_message`.

    Args:
        flow: the flow.
        flow_run: its run.
        state: how it ended; held back is the name of a failed one.
    """
    from prefect.logging import get_logger
    from prefect.utilities.urls import url_for

    page = url_for(flow_run) if flow_run.deployment_id else None  # a command's own server is gone when this is read
    post_message(
        build_message(flow.name, flow_run.name, str(state.name).lower(), state.message or "", page or ""),
        get_logger("darklode").warning,
    )


def build_message(flow: str, run: str, state: str, message: str, page: str = "") -> dict[str, str]:
    """What is posted. `text` is all of it in a sentence, which chat programs show as it is."""
    message_fields = {"flow": flow, "run": run, "state": state, "message": message, "page": page}
    return {"text": f"{flow} {run} {state}: {message} {page}".rstrip()} | message_fields


def post_message(payload: Mapping[str, str], warn: Callable[[str], object]) -> None:
    """Post as JSON to the address in DARKLODE_WEBHOOK; whoever does not answer is let alone.

    Args:
        payload: of `build_message`.
        warn: is told that nobody took it.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        return
    try:
        if not address.startswith(("https://", "http://")):
            raise ValueError("no http address")
        request = Request(address, json.dumps(payload).encode(), {"Content-Type": "application/json"})  # noqa: S310 (http or https)
        with urlopen(request, timeout=SECONDS):  # noqa: S310
            pass
    except (OSError, HTTPException, ValueError) as error:
        warn(f"{VARIABLE} was not told: {type(error).__name__} {getattr(error, 'code', '')}".rstrip())
