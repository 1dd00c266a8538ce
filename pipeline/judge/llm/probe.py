"""What a server obeys, found out by asking it: one that does not know a parameter may ignore it in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.chat import chat_call
from darklode.pipeline.base.remote.client import Session, backoff
from darklode.pipeline.base.remote.faults import Passing, Refused, ServerError
from darklode.pipeline.judge.kinds.llm import LlmSettings
from darklode.pipeline.judge.llm.forms import Form, RequestTemplate
from darklode.pipeline.judge.llm.prompt import PairText, Prompt
from darklode.pipeline.judge.llm.reading import Reading, read

_ELSEWHERE = "Describe the sea in one sentence."
"""A task whose answer is no label, unless the server holds the model to the labels."""

_TRIES = 3


async def probe(settings: LlmSettings, prompt: Prompt, session: Session) -> RequestTemplate:
    """The strictest form that the server obeys, checked with a pair of the prompt.

    Raises:
        DarklodeError: no server can be reached, or none obeys any form, or answers the prompt with a label.
    """
    tries = 0
    while True:
        found = await _strictest(settings, prompt, session)
        if isinstance(found, RequestTemplate):
            return found
        await session.replicas.pause(backoff(tries, found))
        tries += 1


async def _strictest(settings: LlmSettings, prompt: Prompt, session: Session) -> RequestTemplate | Passing:
    """The form, or the failure that the server answers every form with: it may not be ready yet."""
    said, failure = "", None
    for form in forms(settings):
        template = RequestTemplate(settings, prompt, form)
        try:
            reading, failure = await _tried(template, session), None
            if reading.readable and form.logprobs == ("probability" in reading.said):
                return template
            said = f"it answered {reading.said.get('raw_reply')!r}: {reading.said.get('error', 'no probabilities')}"
        except Refused as error:
            said, failure = f"it refused, {error}", error.failure
    if failure:
        return failure
    raise DarklodeError(
        f"the model gives no label in any form that judge.mode {settings.mode} allows; of the last one, {said}. Try "
        "another model, or judge.parameters (a model that thinks first needs more max_tokens, or no thinking)"
    )


async def _read(template: RequestTemplate, session: Session, body: bytes, user: str) -> Reading:
    """One reply. Errors that may be the server's way to say that it does not know a parameter refuse it."""
    call = chat_call(body, template.estimate(user), "a first try", {ServerError: _TRIES})
    return read(await session.call(call), template.form, template.prompt)


def forms(settings: LlmSettings) -> Iterator[Form]:
    """From the strictest to the loosest, log-probabilities first."""
    modes = ("choice", "json", "text") if settings.mode == "auto" else (settings.mode,)
    for mode in modes:
        if mode != "choice" or not settings.rationale:
            for logprobs in (True, False):
                yield Form(mode, logprobs, settings.rationale)


async def _tried(template: RequestTemplate, session: Session) -> Reading:
    """The model's answer to an example; before it, the reply of a server that does not obey."""
    if template.form.mode != "text":
        reading = await _elsewhere(template, session)
        if not reading.readable:
            return reading
    return await _rehearse(template, session)


async def _elsewhere(template: RequestTemplate, session: Session) -> Reading:
    """The reply where nothing but the parameters asks for it: readable if the server obeys; slips are forgiven."""
    body = json.loads(template.body(""))
    body["messages"] = [{"role": "user", "content": _ELSEWHERE}]
    content = json.dumps(body).encode()
    for _ in range(_TRIES):
        reading = await _read(template, session, content, _ELSEWHERE)
        if reading.readable:
            break
    return reading


async def _rehearse(template: RequestTemplate, session: Session) -> Reading:
    """The model's answer to one of the prompt's own examples."""
    one = template.prompt.examples[0] if template.prompt.examples else None
    pair = (
        PairText(one.query, one.title, one.heading, one.chunk) if one else PairText("weather", None, None, "It rains.")
    )
    user, _ = template.shown(pair, template.settings.max_chunk_tokens)
    reading = await _read(template, session, template.body(user), user)
    for _ in range(_TRIES - 1):
        if not reading.readable:
            again = template.body_again(user, reading.said.get("raw_reply"))
            reading = await _read(template, session, again, user)
    return reading
