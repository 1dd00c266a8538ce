"""What a server obeys, found out by asking it: one that does not know a parameter may ignore it in silence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from pipeline.endpoint import Transient
from pipeline.errors import DarklodeError
from pipeline.judges.asking import Asking
from pipeline.judges.calls import Refused
from pipeline.judges.forms import Form
from pipeline.judges.prompt import Asked, Prompt
from pipeline.judges.reading import Reading, read
from schemas.settings import MemberSettings

_ELSEWHERE = "Describe the sea in one sentence."
"""A task whose answer is no label, unless the server holds the model to the labels."""

_TRIES = 3
_BETWEEN_TRIES = 0.5
_UNKNOWN = ("answered 500", "answered 501")
"""Some servers fail so on parameters that they do not know."""

Complete = Callable[[bytes], Awaitable[Mapping[str, Any]]]
"""Sends a body and gives the completion; raises Transient, Refused or DarklodeError."""


async def probe(settings: MemberSettings, prompt: Prompt, complete: Complete) -> Asking:
    """The strictest form that the server obeys, checked with a pair of the prompt.

    Raises:
        Transient: the server cannot be asked now.
        DarklodeError: it obeys no form, or answers the prompt with no label.
    """
    said, failure = "", None
    for form in _forms(settings):
        asking, failure = Asking(settings, prompt, form), None
        try:
            reading = await _tried(asking, complete)
            if reading.readable and form.logprobs == ("probability" in reading.said):
                return asking
            said = f"it answered {reading.said.get('raw_reply')!r}: {reading.said.get('error', 'no probabilities')}"
        except Refused as error:
            said = f"it refused, {error}"
        except Transient as error:
            if error.reason not in _UNKNOWN:
                raise
            failure = error
    if failure:
        raise failure
    raise DarklodeError(
        f"the model gives no label in any form that judge.mode {settings.mode} allows; of the last one, {said}. Try "
        "another model, or judge.parameters (a model that thinks first needs more max_tokens, or no thinking)"
    )


def patient(complete: Complete) -> Complete:
    """The same, asking again after errors that may be the server's way to say that it does not know a parameter."""

    async def again(body: bytes) -> Mapping[str, Any]:
        for _ in range(_TRIES - 1):
            try:
                return await complete(body)
            except Transient as error:
                if error.reason not in _UNKNOWN:
                    raise
                await asyncio.sleep(_BETWEEN_TRIES)
        return await complete(body)

    return again


def _forms(settings: MemberSettings) -> Iterator[Form]:
    """From the strictest to the loosest, log-probabilities first."""
    modes = ("choice", "json", "text") if settings.mode == "auto" else (settings.mode,)
    for mode in modes:
        if mode != "choice" or not settings.rationale:
            for logprobs in (True, False):
                yield Form(mode, logprobs, settings.rationale)


async def _tried(asking: Asking, complete: Complete) -> Reading:
    """The model's answer to an example; before it, the reply of a server that does not obey."""
    if asking.form.mode != "text":
        reading = await _elsewhere(asking, complete)
        if not reading.readable:
            return reading
    return await _rehearse(asking, complete)


async def _elsewhere(asking: Asking, complete: Complete) -> Reading:
    """The reply where nothing but the parameters asks for it: readable if the server obeys; slips are forgiven."""
    body = json.loads(asking.body(""))
    body["messages"] = [{"role": "user", "content": _ELSEWHERE}]
    content = json.dumps(body).encode()
    for _ in range(_TRIES):
        reading = read(await complete(content), asking.form, asking.prompt)
        if reading.readable:
            break
    return reading


async def _rehearse(asking: Asking, complete: Complete) -> Reading:
    """The model's answer to one of the prompt's own examples."""
    one = asking.prompt.examples[0] if asking.prompt.examples else None
    pair = Asked(one.query, one.title, one.heading, one.chunk) if one else Asked("weather", None, None, "It rains.")
    user, _ = asking.shown(pair, asking.settings.max_chunk_tokens)
    reading = read(await complete(asking.body(user)), asking.form, asking.prompt)
    for _ in range(_TRIES - 1):
        if not reading.readable:
            again = asking.body_again(user, reading.said.get("raw_reply"))
            reading = read(await complete(again), asking.form, asking.prompt)
    return reading
