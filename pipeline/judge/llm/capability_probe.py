"""Probe which output formats a server obeys; a server may silently ignore parameters that it does not support."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from darklode.pipeline.base.doubtful_labels import TIED_REASON
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.call_errors import RequestRejected, ServerError
from darklode.pipeline.base.remote.chat import chat_call
from darklode.pipeline.base.remote.client import Session
from darklode.pipeline.base.remote.tokens import estimate_tokens
from darklode.pipeline.judge.llm.logprobs import LABEL_CONTRADICTED
from darklode.pipeline.judge.llm.prompt import JudgePrompt, PairText
from darklode.pipeline.judge.llm.reply_parsing import LlmReading, read
from darklode.pipeline.judge.llm.response_formats import OutputFormat, RequestTemplate
from darklode.pipeline.judge.llm.served_model import served_identity
from darklode.pipeline.judge.llm.settings import LlmSettings

_OFF_TOPIC_TASK = "Describe the sea in one sentence."
"""A task whose answer is not a label, unless the server constrains the output to the labels."""

_MAX_REPLIES = 3
"""Replies per check before the format counts as not obeyed."""

_MAX_TOKENS_RETRIES = (4096, 1024)
"""max_tokens to retry a truncated reply with: a reasoning model may need them, and a format must not fail for lack of
tokens.
"""

_MAX_SERVER_ERRORS = 5
"""A format is rejected after this many server errors, each followed by a successful plain call: fewer could be a
passing failure of the server."""


async def probe(
    settings: LlmSettings, prompt: JudgePrompt, session: Session, say: Callable[[str], None] = lambda _line: None
) -> RequestTemplate:
    """Find the strictest output format that the server obeys, tested with an example of the prompt.

    Server errors are retried and do not reject a format (`ProbeRequest`).

    Args:
        settings: settings of the judge.
        prompt: the judge's prompt, with its labels and examples.
        session: connections to the servers.
        say: receives warnings: the cost of reasoning tokens, missing probabilities, another model's name.

    Raises:
        DarklodeError: no server can be reached, no format is obeyed or gives a label, the servers serve different
            models, or another model answers.
    """
    reason = ""
    served = await _identify_model(settings, prompt, session)
    for form in forms(settings):
        template = RequestTemplate(settings, prompt, form, served)
        trial = ProbeRequest(template, session)
        reading = await trial.result()
        if isinstance(reading, LlmReading):
            reasoning_warning = _reasoning_cost(settings, reading) if reading.has_reasoning else ""
            for warning in (
                reading.other_model,
                reasoning_warning,
                trial.truncation_warning(reading),
                _no_probability_warning(form, settings, reason),
            ):
                if warning:
                    say(warning)
            return template
        reason = reading
    raise DarklodeError(
        "the model gives no label in any output format of judge.response_format "
        f"{settings.response_format}; last attempt: {reason}. Try another model, or judge.extra_body (a reasoning "
        "model needs more max_tokens, or reasoning turned off)"
    )


async def _identify_model(settings: LlmSettings, prompt: JudgePrompt, session: Session) -> str:
    """Identify the served model (see `served_identity`); waits for a server that does not answer."""
    for _ in range(_MAX_REPLIES):
        identity = await served_identity(settings, session)
        if identity is not None:
            return identity
        await ProbeRequest(RequestTemplate(settings, prompt, OutputFormat("text", logprobs=False)), session).plain()
    return ""


def _no_probability_warning(form: OutputFormat, settings: LlmSettings, reason: str) -> str:
    """Build a warning that labels will have no probability, and why; empty if they will."""
    if form.logprobs:
        return ""
    return f"labels of {settings.model} will have no probability: with log-probabilities requested, {reason}"


def forms(settings: LlmSettings) -> Iterator[OutputFormat]:
    """Yield the output formats that the settings allow, from strictest to loosest, each with log-probabilities
    first.
    """
    modes = ("choice", "json", "text") if settings.response_format == "auto" else (settings.response_format,)
    for mode in modes:
        if mode != "choice" or not settings.rationale:
            for logprobs in (True, False):
                yield OutputFormat(mode, logprobs, settings.rationale)


class ProbeRequest:
    """Tests one output format.

    Servers answer unknown parameters with 400 or 500, and 500 may also be a temporary failure. A format is therefore
    rejected only if a plain call succeeds at the same moment; for 500, several times in a row.

    Args:
        template: the judge in this format.
        session: connections to the servers.
    """

    def __init__(self, template: RequestTemplate, session: Session) -> None:
        self._template = template
        self._session = session
        self._is_truncated = False

    async def result(self) -> LlmReading | str:
        """Return the reply to an example, or the reason why the format is not obeyed.

        Raises:
            DarklodeError: no server answers for `retry_timeout` seconds, or a plain call is refused.
        """
        reason = ""
        for _ in range(_MAX_SERVER_ERRORS):
            try:
                return await self._examine()
            except RequestRejected as error:
                reason = f"it refused, {error}"
                await self.plain()
                if not error.failure:
                    break
        return reason

    def truncation_warning(self, answer: LlmReading) -> str:
        """Build a warning that the example's reply was truncated at a pair's max_tokens; empty if it was not.

        Raises:
            DarklodeError: a reasoning model without a configured max_tokens: every reply would be truncated.
        """
        if not self._is_truncated:
            return ""
        settings = self._template.settings
        max_tokens = self._template.estimate("").completion
        used_tokens = answer.values.get("completion_tokens")
        has_reasoning = _has_reasoning(answer)
        subject = f"{settings.model} is a reasoning model, and its" if has_reasoning else f"{settings.model}'s"
        message = (
            f"{subject} first reply was truncated at max_tokens {max_tokens}; with a higher limit it took "
            f"{'an unknown number of' if used_tokens is None else f'{used_tokens:,}'} tokens"
        )
        if has_reasoning and not {"max_tokens", "max_completion_tokens"} & settings.extra_body.keys():
            raise DarklodeError(
                f"{message}. Raise the limit, e.g. judge.extra_body={{max_tokens: {_MAX_TOKENS_RETRIES[0]}}}, or turn "
                "reasoning off, e.g. judge.extra_body={chat_template_kwargs: {enable_thinking: false}}"
            )
        return f"{message}. Longer replies become null: raise judge.extra_body.max_tokens"

    async def _examine(self) -> LlmReading | str:
        """Test the format once: with an off-topic task, which reveals an unconstrained server, then with an example."""
        objection = self._objection(await self._off_topic_reply()) if self._template.form.mode != "text" else ""
        if objection:
            return objection
        reading = await self._example_reply()
        return self._objection(reading, is_final=True) or reading

    def _objection(self, reading: LlmReading, *, is_final: bool = False) -> str:
        """Say why a reply shows that the format is not obeyed; empty if it is."""
        missing = reading.values.get("no_probability") if is_final and self._template.form.logprobs else None
        if reading.is_readable and missing in {None, TIED_REASON, LABEL_CONTRADICTED}:
            return ""
        return f"it answered {reading.values.get('raw_reply')!r}: {reading.values.get('error', missing)}"

    async def _off_topic_reply(self) -> LlmReading:
        """Request a reply to an off-topic task, where only the parameters request a label; retried if unreadable."""
        body = json.loads(self._template.body(""))
        body["messages"] = [{"role": "user", "content": _OFF_TOPIC_TASK}]
        content = json.dumps(body).encode()
        for _ in range(_MAX_REPLIES):
            reading, _ = await self._read_untruncated(content, _OFF_TOPIC_TASK)
            if reading.is_readable:
                break
        return reading

    async def _example_reply(self) -> LlmReading:
        """Request a reply to an example of the prompt; retried if unreadable."""
        user, _ = self._template.fit_pair(_example(self._template.prompt), self._template.settings.max_chunk_tokens)
        body = self._template.body(user)
        for _ in range(_MAX_REPLIES):
            reading, self._is_truncated = await self._read_untruncated(body, user)
            if not self._objection(reading, is_final=True):
                break
            if not reading.is_readable:
                body = self._template.body_again(user, reading.values.get("raw_reply"))
        return reading

    async def _read_untruncated(self, body: bytes, user: str) -> tuple[LlmReading, bool]:
        """Request one reply, again with a higher max_tokens if it was truncated; also returns whether it was."""
        reading = await self._read(body, self._template.estimate(user))
        if not reading.is_truncated:
            return reading, False
        for limit in _MAX_TOKENS_RETRIES:
            request = json.loads(body)
            field = "max_completion_tokens" if "max_completion_tokens" in request else "max_tokens"
            max_tokens = max(limit, int(request.get(field) or 0))
            content = json.dumps(request | {field: max_tokens}).encode()
            try:
                longer_reading = await self._read(content, Usage(self._template.estimate(user).prompt, max_tokens))
            except RequestRejected:  # the context window is too short
                continue
            return longer_reading, True
        return reading, True

    async def _read(self, body: bytes, estimate: Usage) -> LlmReading:
        """Request one reply. A server error is not retried, since it may mean an unsupported parameter."""
        call = chat_call(body, estimate, "a first try", {ServerError: 1})
        return read(await self._session.call(call), self._template)

    async def plain(self) -> None:
        """Make a call without the format's parameters, retried until it succeeds.

        Raises:
            DarklodeError: it is refused or never succeeds.
        """
        body = self._template.plain_body(_OFF_TOPIC_TASK)
        try:
            await self._session.call(chat_call(body, self._template.estimate(_OFF_TOPIC_TASK), "a plain first try"))
        except RequestRejected as error:
            settings = self._template.settings
            raise DarklodeError(
                f"{settings.model} refuses even a plain call, {error}: check judge.model and judge.extra_body"
            ) from None


def _example(prompt: JudgePrompt) -> PairText:
    """Return the prompt's first example, or a made-up pair for a prompt without examples."""
    if not prompt.examples:
        return PairText("weather", None, None, "It rains.")
    example = prompt.examples[0]
    return PairText(example.query, example.title, example.heading, example.chunk)


def _has_reasoning(answer: LlmReading) -> bool:
    """Whether the reply has reasoning tokens: reported, or implied by more tokens than the reply has bytes plus one end
    token.
    """
    used_tokens = answer.values.get("completion_tokens")
    reply_bytes = (answer.values.get("raw_reply") or "").encode()
    return answer.has_reasoning or (used_tokens is not None and used_tokens > len(reply_bytes) + 1)


def _reasoning_cost(settings: LlmSettings, reading: LlmReading) -> str:
    """Build a warning about the cost of reasoning tokens."""
    tokens = reading.values.get("completion_tokens")
    price = settings.completion_price_per_million
    message = f"{settings.model} is a reasoning model"
    if tokens is not None:
        label = estimate_tokens(reading.values["raw_reply"])
        message += f": {tokens:,} tokens for the first reply, of which the label takes at most {label}"
        message += f"; {tokens * price / 1000:,.2f} for 1,000 pairs" if price else ""
    return (
        f"{message}. Every pair costs these tokens and this time; many models answer directly with "
        "judge.extra_body={chat_template_kwargs: {enable_thinking: false}}"
    )
