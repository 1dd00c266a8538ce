"""Notifications of failed and held runs: a webhook whose address is in the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from darklode.pipeline.base.errors import HeldBack, NoLift, NotPublishable

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.schemas.objects import FlowRun, State

ADDRESS_VARIABLE = "DARKLODE_WEBHOOK"
"""Its address often contains a secret, so it is read when needed, never stored, and never part of a message."""

POST_SECONDS = 10.0


def notify(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Post the final state of a flow run, as a Prefect hook."""
    from prefect.logging import get_logger
    from prefect.utilities.urls import url_for

    page = url_for(flow_run) if flow_run.deployment_id else None  # a command's own server has ended when this is read
    post_message(
        build_message(flow.name, flow_run.name, str(state.name).lower(), state.message or "", page or ""),
        get_logger("darklode").warning,
    )


def state_of(error: Exception) -> str:
    """State of a job that ended with an error: held if it finished, but its result is not published."""
    return "held" if isinstance(error, HeldBack | NoLift | NotPublishable) else "failed"


def build_message(flow: str, run: str, state: str, message: str, page: str = "") -> dict[str, str]:
    """The posted fields; `text` has all of them in one sentence, as chat programs expect."""
    message_fields = {"flow": flow, "run": run, "state": state, "message": message, "page": page}
    return {"text": f"{flow} {run} {state}: {message} {page}".rstrip()} | message_fields


def post_message(payload: Mapping[str, str], warn: Callable[[str], object]) -> None:
    """Post as JSON to the address in DARKLODE_WEBHOOK, if there is one; a failure is only a warning.

    Args:
        payload: result of `build_message`.
        warn: receives the warning.
    """
    address = os.environ.get(ADDRESS_VARIABLE)
    if not address:
        return
    try:
        if not address.startswith(("https://", "http://")):
            raise ValueError("not an http address")
        request = Request(address, json.dumps(payload).encode(), {"Content-Type": "application/json"})  # noqa: S310 (http or https)
        with urlopen(request, timeout=POST_SECONDS):  # noqa: S310
            pass
    except (OSError, HTTPException, ValueError) as error:
        warn(f"{ADDRESS_VARIABLE} could not be reached: {type(error).__name__} {getattr(error, 'code', '')}".rstrip())
