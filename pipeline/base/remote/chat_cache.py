"""Questions to a chat model whose replies are kept as they come: each is paid for once, over all runs."""

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
from darklode.pipeline.base.remote.call_errors import Refused
from darklode.pipeline.base.remote.chat import chat_call, fields, incomplete, is_cut_off, max_tokens
from darklode.pipeline.base.remote.client import Client, Lane
from darklode.pipeline.base.remote.tokens import estimate_tokens

ATTEMPTS = 4
MAX_TOKENS = 2048
"""Of a reply, where the request does not say and a limit asks what a call under way may cost at most."""
KEEP_SECONDS = 0.5
"""A reply waits no longer than this until it is kept: with the calls under way, what a kill may cost."""

Messages = list[dict[str, str]]


class UnreadableReply(ValueError):
    """The reply is not what was asked for."""


_FENCE = re.compile(r"\A```\w*\s*(.*?)\s*```\Z", re.S)


def object_in(reply: object) -> dict[str, object]:
    """The JSON object that a reply is, in a code fence or not.

    Raises:
        Unreadable: it is none.
    """
    if not isinstance(reply, str):
        raise UnreadableReply("the reply has no text")
    fenced = _FENCE.match(reply.strip())
    try:
        read = json.loads(fenced[1] if fenced else reply)
    except (ValueError, RecursionError):
        raise UnreadableReply("the reply is no JSON") from None
    if not isinstance(read, dict):
        raise UnreadableReply("the reply is no JSON object")
    return read


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        key: a content hash, 32 hex digits, that names it among its owner's.
        name: what it is about, for messages.
        messages: what is sent; given is the reply before, if that could not be read.
        read: looks at a reply.

            Raises:
                Unreadable: it is not what was asked for.
    """

    key: str
    name: str
    messages: Callable[[str | None], Messages]
    read: Callable[[object], object]


@dataclass(frozen=True)
class SingleFlight:
    """Asks, and keeps each reply in a store whose kind has one key and the values `reply` and `error`.

    A reply that cannot be read is asked for again, three times at most, unless it was cut off: the next would be, too.
    Then `error` says why there is none, and so it does of what the server refuses. Neither is asked again.

    Attributes:
        client: of the server.
        store: where replies are kept.
        request: what is sent with every call besides the messages: the model, and how it decodes; see `chat.fields`.
            Under a limit of the client's endpoint, `max_tokens` is `MAX_TOKENS` by default.
    """

    client: Client
    store: KeyedStore
    request: Mapping[str, Any]

    def ask(
        self, owner: str, questions: Iterable[Question], on_progress: Callable[[int], None] = lambda _answered: None
    ) -> None:
        """Ask all, and keep what is said.

        Args:
            owner: whose replies they are.
            questions: none of them is kept already.
            on_progress: is told how many were answered so far, now and then.

        Raises:
            DarklodeError: no call can succeed, or none has for `give_up_after` seconds. What was answered is kept.
        """
        waiting, since, answered = list[dict[str, str | None]](), time.monotonic(), 0
        with Background() as background:
            try:
                for reply in background.iterate(self._replies(questions)):
                    waiting.append(reply)
                    answered += 1
                    if time.monotonic() - since >= KEEP_SECONDS:
                        self._store_reply(owner, waiting)
                        on_progress(answered)
                        waiting, since = [], time.monotonic()
            finally:
                self._store_reply(owner, waiting)

    def _store_reply(self, owner: str, replies: list[dict[str, str | None]]) -> None:
        kind = self.store.kind
        names = [*kind.key, *kind.values.names]
        columns = {name: pa.array([reply[name] for reply in replies], pa.string()) for name in names}
        self.store.append(owner, pa.table(columns))

    async def _replies(self, questions: Iterable[Question]) -> AsyncGenerator[dict[str, str | None]]:
        async with (
            self.client.session() as session,
            aclosing(session.results(([question] for question in questions), self._reply)) as results,
        ):
            async for some in results:
                for question in some:
                    yield question

    @cached_property
    def _request(self) -> dict[str, Any]:
        return fields({"max_tokens": MAX_TOKENS} if self.client.endpoint.has_limit else {}, self.request)

    async def _reply(self, question: Question, lane: Lane) -> dict[str, str | None]:
        """A row of the store."""
        (key,), columns, error = self.store.kind.key, None, ""
        counters = self.client.counters
        for attempt in range(ATTEMPTS):
            counters.asked_again += attempt > 0
            messages = question.messages(columns)
            prompt = sum(estimate_tokens(message["content"]) for message in messages)
            estimate = Usage(prompt, max_tokens(self._request))
            body = json.dumps({**self._request, "messages": messages}).encode()
            try:
                completion = await lane.call(chat_call(body, estimate, question.name))
                choice = completion["choices"][0]
                reply = choice["message"].get("content")
                why = incomplete(choice)
                if is_cut_off(choice):
                    error = why
                    break
                if why:
                    raise UnreadableReply(why)
                question.read(reply)
            except Refused as refused:
                error = f"the server refused it, {refused}"
                break
            except UnreadableReply as unreadable:
                columns, error = reply if isinstance(reply, str) else "", str(unreadable)
            else:
                counters.answer(null=False)
                return {key: question.key, "reply": reply, "error": None}
        counters.answer(null=True)
        return {key: question.key, "reply": None, "error": error}
