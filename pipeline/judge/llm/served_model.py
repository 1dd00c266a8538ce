"""The model behind a name: whatever a server calls it, what is served is part of who the judge is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.call_errors import Response, TransientError, response_error
from darklode.pipeline.base.remote.client import Session
from darklode.pipeline.judge.kinds.llm import LlmSettings


async def served_identity(settings: LlmSettings, session: Session) -> str | None:
    """What the servers say now that they serve under `judge.model`: the `root` and `revision` of their `/models`.

    Empty where that is the name itself, where no server says it, or with `judge.trust_name`; None where none answers.

    Raises:
        DarklodeError: the servers serve different models.
    """
    if settings.trust_name:
        return ""
    shown = [_model_identity(response, settings) for response in await session.probe("/models") if response]
    identities = sorted({name for name in shown if name is not None})
    if len(identities) > 1:
        each = ", ".join(name or "nothing that they name" for name in identities)
        raise DarklodeError(
            f"the servers of {settings.model} serve different models: {each}. Serve one, or set judge.trust_name where "
            "it is one model in several places"
        )
    return identities[0] if identities else None


def _model_identity(response: Response, settings: LlmSettings) -> str | None:
    """What one server says; None where it cannot say anything yet."""
    if response.status != 200:
        passing = isinstance(response_error(response, "", "", "judge"), TransientError)
        return None if passing else ""
    try:
        cards = json.loads(response.content)["data"]
        card: Mapping[str, Any] = next((card_entry for card_entry in cards if card_entry["id"] == settings.model), {})
        root, revision = (_text(card.get(name)) for name in ("root", "revision"))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return ""
    other = root if root != settings.model else ""
    newer = revision if revision != settings.revision else ""
    return f"{root or settings.model}@{newer}" if newer else other


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def other_model(completion: Mapping[str, Any], settings: LlmSettings) -> str:
    """What to say of a reply in another model's name than was asked; empty if it names none, or the right one."""
    by = _text(completion.get("model"))
    if by in {"", settings.model}:
        return ""
    return (
        f"{settings.model} was asked, and {by!r} answered. Name the model that answers in judge.model, so that its "
        "verdicts are kept as its own; or set judge.trust_name, where both names are the same model's"
    )
