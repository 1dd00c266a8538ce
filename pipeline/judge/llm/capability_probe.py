"""What a server obeys, found out by asking it: one that does not know a parameter may ignore it in silence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from darklode.pipeline.base.doubtful_labels import TIED
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.call_errors import RequestRejected, ServerError
from darklode.pipeline.base.remote.chat import chat_call
from darklode.pipeline.base.remote.client import Session
from darklode.pipeline.base.remote.tokens import estimate_tokens
from darklode.pipeline.judge.kinds.llm import LlmSettings
from darklode.pipeline.judge.llm.logprobs import CONTRADICTED
from darklode.pipeline.judge.llm.prompt import JudgePrompt, PairText
from darklode.pipeline.judge.llm.reply_parsing import LlmReading, read
from darklode.pipeline.judge.llm.response_formats import OutputFormat, RequestTemplate
from darklode.pipeline.judge.llm.served_model import served_identity

_ELSEWHERE = "Describe the sea in one sentence."
"""A task whose answer is no label, unless the server holds the model to the labels."""

_TRIES = 3
"""Replies that may slip before the server counts as one that does not obey."""

_ROOMS = (4096, 1024)
"""Tokens for a reply that was cut off: a model that thinks needs them, and no form may be left out for want of them."""

_FAILURES = 5
"""So often a form must fail, and a plain call right after it succeed, before the form is to blame."""


async def probe(
    settings: LlmSettings, prompt: JudgePrompt, session: Session, say: Callable[[str], None] = lambda _line: None
) -> RequestTemplate:
    """The judge that is served, in the strictest form that the server obeys, checked with a pair of the prompt.

    A server that fails is waited for, and its failure leaves no form out: see `ProbeRequest`.

    Args:
        settings: of the judge.
        prompt: whose labels are asked for.
        session: connections to the servers.
        say: told that the model thinks, and what that costs; and, with `judge.trust_name`, who answers.

    Raises:
        DarklodeError: no server can be reached, or none obeys any form, or answers the prompt with a label, or the
            servers serve different models, or another one than was asked.
    """
    reason, name = "", await _identify_model(settings, prompt, session)
    for form in forms(settings):
        template = RequestTemplate(settings, prompt, form, name)
        trial = ProbeRequest(template, session)
        reading = await trial.result()
        if isinstance(reading, LlmReading):
            thoughts = _cost_of_thoughts(settings, reading) if reading.thought else ""
            for line in (reading.other_model, thoughts, trial.cut_off(reading), _without(form, settings, reason)):
                if line:
                    say(line)
            return template
        reason = reading
    raise DarklodeError(
        f"the model gives no label in any form that judge.mode {settings.mode} allows; of the last one, {reason}. Try "
        "another model, or judge.parameters (a model that thinks first needs more max_tokens, or no thinking)"
    )


async def _identify_model(settings: LlmSettings, prompt: JudgePrompt, session: Session) -> str:
    """See `served`; a server that does not answer is waited for."""
    for _ in range(_TRIES):
        identity = await served_identity(settings, session)
        if identity is not None:
            return identity
        await ProbeRequest(RequestTemplate(settings, prompt, OutputFormat("text", logprobs=False)), session).plain()
    return ""


def _without(form: OutputFormat, settings: LlmSettings, reason: str) -> str:
    """That there will be no probabilities, and why; empty where there will be."""
    if form.logprobs:
        return ""
    return f"labels of {settings.model} will have no probability: with log-probabilities asked for, {reason}"


def forms(settings: LlmSettings) -> Iterator[OutputFormat]:
    """From the strictest to the loosest, log-probabilities first."""
    modes = ("choice", "json", "text") if settings.mode == "auto" else (settings.mode,)
    for mode in modes:
        if mode != "choice" or not settings.rationale:
            for logprobs in (True, False):
                yield OutputFormat(mode, logprobs, settings.rationale)


class ProbeRequest:
    """A form on trial.

    Some servers answer parameters that they do not know with 400, others with 500, as they do when in trouble. So a
    form is left out only if a plain call succeeds at that moment, for a 500 several times in turn.

    Args:
        template: the judge in that form.
        session: connections to the servers.
    """

    def __init__(self, template: RequestTemplate, session: Session) -> None:
        self._template, self._session = template, session
        self._cut_off = False

    async def result(self) -> LlmReading | str:
        """The model's answer to an example, or how the server does not obey.

        Raises:
            DarklodeError: no server answers for `give_up_after` seconds, or even a plain call is refused.
        """
        reason = ""
        for _ in range(_FAILURES):
            try:
                return await self._examine()
            except RequestRejected as error:
                reason = f"it refused, {error}"
                await self.plain()
                if not error.failure:
                    break
        return reason

    def cut_off(self, answer: LlmReading) -> str:
        """What to say if the example's answer was cut off where it had no more room than a pair's; empty if it was not.

        Raises:
            DarklodeError: the model thinks, and nobody chose that room, so that every reply would be cut off.
        """
        if not self._cut_off:
            return ""
        settings, max_tokens = self._template.settings, self._template.estimate("").completion
        took, thinks = answer.values.get("completion_tokens"), _has_thoughts(answer)
        subject = f"{settings.model} thinks before it answers, and its" if thinks else f"{settings.model}'s"
        message = (
            f"{subject} first answer was cut off at max_tokens {max_tokens}: with more room it took "
            f"{'an unknown number of' if took is None else f'{took:,}'} tokens"
        )
        if thinks and not {"max_tokens", "max_completion_tokens"} & settings.parameters.keys():
            raise DarklodeError(
                f"{message}. Give it more, such as judge.parameters={{max_tokens: {_ROOMS[0]}}}, or turn thinking off, "
                "such as judge.parameters={chat_template_kwargs: {enable_thinking: false}}"
            )
        return f"{message}. Replies that need more become null: raise judge.parameters.max_tokens"

    async def _examine(self) -> LlmReading | str:
        """The same; before the example comes a task whose answer shows a server that does not obey."""
        objection = self._why_not(await self._unforced_reply()) if self._template.form.mode != "text" else ""
        if objection:
            return objection
        reading = await self._rehearse()
        return self._why_not(reading, is_final=True) or reading

    def _why_not(self, reading: LlmReading, *, is_final: bool = False) -> str:
        """Why a reply shows that the server does not obey; empty if it does."""
        missing = reading.values.get("no_probability") if is_final and self._template.form.logprobs else None
        if reading.readable and missing in {None, TIED, CONTRADICTED}:
            return ""
        return f"it answered {reading.values.get('raw_reply')!r}: {reading.values.get('error', missing)}"

    async def _unforced_reply(self) -> LlmReading:
        """The reply where nothing but the parameters asks for it; slips are forgiven."""
        body = json.loads(self._template.body(""))
        body["messages"] = [{"role": "user", "content": _ELSEWHERE}]
        content = json.dumps(body).encode()
        for _ in range(_TRIES):
            reading, _ = await self._read_cut(content, _ELSEWHERE)
            if reading.readable:
                break
        return reading

    async def _rehearse(self) -> LlmReading:
        """The model's answer to one of the prompt's own examples; slips are forgiven."""
        user, _ = self._template.fit_pair(_example(self._template.prompt), self._template.settings.max_chunk_tokens)
        body = self._template.body(user)
        for _ in range(_TRIES):
            reading, self._cut_off = await self._read_cut(body, user)
            if not self._why_not(reading, is_final=True):
                break
            if not reading.readable:
                body = self._template.body_again(user, reading.values.get("raw_reply"))
        return reading

    async def _read_cut(self, body: bytes, user: str) -> tuple[LlmReading, bool]:
        """One reply, with more room if it was cut off, and whether it was."""
        reading = await self._read(body, self._template.estimate(user))
        if not reading.cut_off:
            return reading, False
        for room in _ROOMS:
            request = json.loads(body)
            name = "max_completion_tokens" if "max_completion_tokens" in request else "max_tokens"
            more = max(room, int(request.get(name) or 0))
            content = json.dumps(request | {name: more}).encode()
            try:
                roomy = await self._read(content, Usage(self._template.estimate(user).prompt, more))
            except RequestRejected:  # a short context has no such room
                continue
            return roomy, True
        return reading, True

    async def _read(self, body: bytes, estimate: Usage) -> LlmReading:
        """One reply. Errors that may be the server's way to say that it does not know a parameter refuse it."""
        call = chat_call(body, estimate, "a first try", {ServerError: 1})
        return read(await self._session.call(call), self._template)

    async def plain(self) -> None:
        """A call without the form's parameters, waited for until it succeeds.

        Raises:
            DarklodeError: it never does.
        """
        body = self._template.plain_body(_ELSEWHERE)
        try:
            await self._session.call(chat_call(body, self._template.estimate(_ELSEWHERE), "a plain first try"))
        except RequestRejected as error:
            settings = self._template.settings
            raise DarklodeError(
                f"{settings.model} refuses even a plain call, {error}: check judge.model and judge.parameters"
            ) from None


def _example(prompt: JudgePrompt) -> PairText:
    """One of the prompt's own."""
    if not prompt.examples:
        return PairText("weather", None, None, "It rains.")
    example = prompt.examples[0]
    return PairText(example.query, example.title, example.heading, example.chunk)


def _has_thoughts(answer: LlmReading) -> bool:
    """Whether there were thoughts, or more tokens than the answer has bytes and one to end it."""
    took, shown = answer.values.get("completion_tokens"), (answer.values.get("raw_reply") or "").encode()
    return answer.thought or (took is not None and took > len(shown) + 1)


def _cost_of_thoughts(settings: LlmSettings, reading: LlmReading) -> str:
    """What a person may want to know before thousands of calls."""
    tokens, price = reading.values.get("completion_tokens"), settings.completion_price_per_million
    message = f"{settings.model} thinks before it answers"
    if tokens is not None:
        label = estimate_tokens(reading.values["raw_reply"])
        message += f": {tokens:,} tokens for a first answer, of which the answer itself takes {label} or fewer"
        message += f"; {tokens * price / 1000:,.2f} for 1,000 pairs" if price else ""
    return (
        f"{message}. That is paid and waited for with every pair; many models answer at once with "
        "judge.parameters={chat_template_kwargs: {enable_thinking: false}}"
    )
