"""Identify the model that is served under a name; it is part of the judge's id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.call_errors import Response, TransientError, response_error
from darklode.pipeline.base.remote.client import Session
from darklode.pipeline.judge.llm.settings import LlmSettings


async def served_identity(settings: LlmSettings, session: Session) -> str | None:
    """Ask the servers for the `root` and `revision` that their `/models` report for `judge.model`.

    Empty if that is the name itself, if no server reports it, or with `judge.trust_model_name`; None if no server
    answers.

    Raises:
        DarklodeError: the servers serve different models.
    """
    if settings.trust_model_name:
        return ""
    answers = [_model_identity(response, settings) for response in await session.probe("/models") if response]
    identities = sorted({name for name in answers if name is not None})
    if len(identities) > 1:
        listing = ", ".join(name or "not reported" for name in identities)
        raise DarklodeError(
            f"the servers of {settings.model} serve different models: {listing}. Serve one model, or set "
            "judge.trust_model_name if these are the same model"
        )
    return identities[0] if identities else None


def _model_identity(response: Response, settings: LlmSettings) -> str | None:
    """Read the identity from one server's answer; empty if it reports none, None if it is temporarily unavailable."""
    if response.status != 200:
        is_temporary = isinstance(response_error(response, "", "", "judge"), TransientError)
        return None if is_temporary else ""
    try:
        cards = json.loads(response.content)["data"]
        card: Mapping[str, Any] = next((card_entry for card_entry in cards if card_entry["id"] == settings.model), {})
        root, revision = (_text(card.get(name)) for name in ("root", "revision"))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return ""
    reported_root = root if root != settings.model else ""
    reported_revision = revision if revision != settings.revision else ""
    return f"{root or settings.model}@{reported_revision}" if reported_revision else reported_root


def _text(value: object) -> str:
    """Return the value if it is a string, or else an empty string."""
    return value if isinstance(value, str) else ""


def other_model(completion: Mapping[str, Any], settings: LlmSettings) -> str:
    """Build an error message if a reply names another model than requested; empty if it names none or the right one."""
    by = _text(completion.get("model"))
    if by in {"", settings.model}:
        return ""
    return (
        f"{settings.model} was requested, but {by!r} answered. Set judge.model to the model that answers, or set "
        "judge.trust_model_name if both names are the same model"
    )
