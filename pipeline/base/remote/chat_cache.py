"""Ask a chat model and cache its replies as they arrive, so that each is paid for only once across runs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.call_errors import RequestRejected
from darklode.pipeline.base.remote.chat import chat_call, incomplete_reason, is_truncated, max_tokens, merge_fields
from darklode.pipeline.base.remote.client import Client, Lane
from darklode.pipeline.base.remote.tokens import estimate_tokens

MAX_ATTEMPTS = 4
DEFAULT_MAX_TOKENS = 2048
"""Default `max_tokens` under a spending or token limit, which needs an upper bound for each call."""
STORE_SECONDS = 0.5
"""Maximum seconds until a reply is stored; a kill loses these replies and the calls in flight."""

Messages = list[dict[str, str]]


class UnreadableReply(ValueError):
    """The reply does not have the requested form."""


_FENCE = re.compile(r"\A```\w*\s*(.*?)\s*```\Z", re.S)


def parse_object(reply: object) -> dict[str, object]:
    """Parse a reply as a JSON object, with or without a code fence.

    Raises:
        UnreadableReply: it is not a JSON object.
    """
    if not isinstance(reply, str):
        raise UnreadableReply("the reply has no text")
    fenced = _FENCE.match(reply.strip())
    try:
        value = json.loads(fenced[1] if fenced else reply)
    except (ValueError, RecursionError):
        raise UnreadableReply("the reply is not JSON") from None
    if not isinstance(value, dict):
        raise UnreadableReply("the reply is not a JSON object")
    return value


@dataclass(frozen=True)
class Question:
    """A question to the model.

    Attributes:
        key: content hash, 32 hex digits, unique for its owner.
        name: subject, for messages.
        messages: makes the messages; the argument is the previous reply, if it was unreadable.
        read: validates a reply.

            Raises:
                UnreadableReply: it does not have the requested form.
    """

    key: str
    name: str
    messages: Callable[[str | None], Messages]
    read: Callable[[object], object]


@dataclass(frozen=True)
class SingleFlight:
    """Asks questions and stores each reply; the store's kind has one key and the values `reply` and `error`.

    Unreadable replies are requested again, at most three times, but not truncated ones, because the next reply would be
    truncated, too. Then `error` has the reason, as for rejected requests. Neither is asked again in later runs.

    Attributes:
        client: client of the server.
        store: store of the replies.
        request: request fields besides the messages: model and decoding parameters. If the client's endpoint has a
            limit, `max_tokens` is `DEFAULT_MAX_TOKENS` by default.
    """

    client: Client
    store: KeyedStore
    request: Mapping[str, Any]

    def ask(
        self, owner: str, questions: Iterable[Question], on_progress: Callable[[int], None] = lambda _answered: None
    ) -> None:
        """Ask all questions and store the replies.

        Args:
            owner: owner of the replies in the store.
            questions: questions whose replies are not stored yet.
            on_progress: called regularly with the number of answers.

        Raises:
            DarklodeError: no call can succeed, or none has for `retry_timeout` seconds. Replies so far are stored.
        """
        buffered, since, answered = list[dict[str, str | None]](), time.monotonic(), 0
        with Background() as background:
            try:
                for reply in background.iterate(self._replies(questions)):
                    buffered.append(reply)
                    answered += 1
                    if time.monotonic() - since >= STORE_SECONDS:
                        self._store_replies(owner, buffered)
                        on_progress(answered)
                        buffered, since = [], time.monotonic()
            finally:
                self._store_replies(owner, buffered)

    def _store_replies(self, owner: str, replies: list[dict[str, str | None]]) -> None:
        kind = self.store.kind
        names = [*kind.key, *kind.values.names]
        columns = {name: pa.array([reply[name] for reply in replies], pa.string()) for name in names}
        self.store.append(owner, pa.table(columns))

    async def _replies(self, questions: Iterable[Question]) -> AsyncGenerator[dict[str, str | None]]:
        async with (
            self.client.session() as session,
            aclosing(session.results(([question] for question in questions), self._reply)) as results,
        ):
            async for replies in results:
                for reply in replies:
                    yield reply

    @cached_property
    def _request(self) -> dict[str, Any]:
        return merge_fields({"max_tokens": DEFAULT_MAX_TOKENS} if self.client.endpoint.has_limit else {}, self.request)

    async def _reply(self, question: Question, lane: Lane) -> dict[str, str | None]:
        """Ask a question; returns a row for the store."""
        (key,), unreadable_reply, error = self.store.kind.key, None, ""
        counters = self.client.counters
        for attempt in range(MAX_ATTEMPTS):
            counters.asked_again += attempt > 0
            messages = question.messages(unreadable_reply)
            prompt = sum(estimate_tokens(message["content"]) for message in messages)
            estimate = Usage(prompt, max_tokens(self._request))
            body = json.dumps({**self._request, "messages": messages}).encode()
            try:
                completion = await lane.call(chat_call(body, estimate, question.name))
                choice = completion["choices"][0]
                reply = choice["message"].get("content")
                problem = incomplete_reason(choice)
                if is_truncated(choice):
                    error = problem
                    break
                if problem:
                    raise UnreadableReply(problem)
                question.read(reply)
            except RequestRejected as refused:
                error = f"the server rejected it, {refused}"
                break
            except UnreadableReply as unreadable:
                unreadable_reply, error = reply if isinstance(reply, str) else "", str(unreadable)
            else:
                counters.answer(null=False)
                return {key: question.key, "reply": reply, "error": None}
        counters.answer(null=True)
        return {key: question.key, "reply": None, "error": error}
