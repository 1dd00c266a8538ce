"""Queries by a language model behind OpenAI-compatible servers, and its word on whether they stand alone."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.chat_prompt import ChatPrompt
from darklode.pipeline.base.memory.parts import settled
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import Entries, KeyedStore
from darklode.pipeline.base.remote.asked_once import AskedOnce, Question, Unreadable, object_in
from darklode.pipeline.base.remote.budget import Counters, SpendingBook
from darklode.pipeline.base.remote.client import Client
from darklode.pipeline.base.remote.tokens import cut
from darklode.pipeline.generate.kinds.llm import LlmWriterSettings
from darklode.pipeline.generate.port import WRITTEN, Writer
from darklode.pipeline.judge.kinds.llm import LlmSettings
from darklode.pipeline.judge.llm.judge import endpoint_of
from darklode.schemas.settings import CacheSettings

_LOG = logging.getLogger("darklode.generate")

REPLIES = RowKind(
    "generations",
    "writer",
    ("question",),
    pa.schema([pa.field("reply", pa.string()), pa.field("error", pa.string())]),
    answer="reply",
)
"""What a writer answered to a question, which is named by all that it was told."""


class LlmWriter(Writer):
    """Asks once for each text, and once more for each query whether it stands alone; replies are kept as they come.

    Args:
        settings: of the kind llm.
        judge: whose model, servers and limits are used.
        root: of the cache; null: the user's cache folder.
    """

    keeps = True

    def __init__(self, settings: LlmWriterSettings, judge: LlmSettings, root: str | None) -> None:
        self._settings, self._judge, self._root = settings, judge, root
        self._prompt = ChatPrompt.load("generate", settings.prompt, "examples", "text")
        self._alone = ChatPrompt.load("generate", "self_contained", "query")
        told = f"{self._prompt.digest()} {self._alone.digest()} {settings.temperature:g} {settings.examples}"
        sent = f" {json.dumps(judge.parameters, sort_keys=True)}" if judge.parameters else ""
        model = f"{judge.model} {judge.revision or ''}".strip()
        self.generator_id = f"llm writer 1 {model} {told} {settings.max_text_tokens}{sent}"

    @cached_property
    def _client(self) -> Client:
        endpoint = endpoint_of(self._judge)
        return Client(endpoint, SpendingBook(self._root, endpoint.account), _LOG.warning)

    @cached_property
    def _store(self) -> KeyedStore:
        return KeyedStore(self._root, REPLIES)

    @cached_property
    def _entries(self) -> Entries:
        """What is kept of this writer, opened once: to open it is to read every key."""
        self._store.tidy(self.generator_id)
        return self._store.open(self.generator_id)

    @property
    def counters(self) -> Counters:
        """See `Writer`."""
        return self._client.counters

    @property
    def workers(self) -> int:
        """See `Writer`."""
        return self._judge.workers

    def portion(self, share: float, at_once: int) -> LlmWriter:
        """See `Writer`: its part of the calls under way, and of what is left of the judge's limits."""
        cache = settled(CacheSettings(root=self._root))
        return LlmWriter(self._settings, self._judge.portion(cache, share, at_once), cache.root)

    def write(self, texts: pa.Table, examples: list[str], told: Callable[[int], None]) -> pa.Table:
        """See `Writer`.

        Raises:
            DarklodeError: no call can succeed, or a limit is reached. What was answered is kept.
        """
        asked = [self._about(row, examples) for row in texts.to_pylist()]
        said = self._answers(asked, self._settings.temperature, told)
        queries = [None if reply is None else query_in(reply) for reply, _ in said]
        known = [query for query in queries if query is not None]
        verdicts = iter(self._answers([self._alone_about(query) for query in known], 0.0, lambda _done: None))
        alone = [None if query is None else _told(next(verdicts)[0]) for query in queries]
        return pa.table([queries, [error for _, error in said], alone], schema=WRITTEN)

    def _about(self, row: Mapping[str, Any], examples: list[str]) -> Question:
        draws = np.random.default_rng(row["draw"])
        count = min(self._settings.examples, len(examples))
        shown = [examples[place] for place in draws.choice(len(examples), count, replace=False)] if count else []
        said = "\n".join(filter(None, [row["title"], row["heading"], row["text"]]))
        text = cut(said, self._settings.max_text_tokens)
        return _question(
            self._prompt, {"examples": "\n".join(shown), "text": text}, f"text {row['chunk_id']}", query_in
        )

    def _alone_about(self, query: str) -> Question:
        return _question(self._alone, {"query": query}, f"query {query[:60]!r}", alone_in)

    def _answers(
        self, questions: list[Question], temperature: float, told: Callable[[int], None]
    ) -> list[tuple[str | None, str | None]]:
        """Reply and error of each question."""
        entries, keys = self._entries, [one.key for one in questions]
        named = pa.table({"question": pa.array(keys, pa.string())})
        if keys and len(entries.find(named).rows) < len(keys):
            entries.refresh()  # others may have asked since
        there = set(np.array(keys)[entries.find(named).rows].tolist()) if keys else set()
        open_ = {one.key: one for one in questions if one.key not in there}
        if open_:
            request = {"model": self._judge.model, "temperature": temperature, **self._judge.parameters}
            AskedOnce(self._client, self._store, request).ask(self.generator_id, open_.values(), told)
            entries.refresh()
        found = entries.find(named)
        rows = zip(found.values["reply"].to_pylist(), found.values["error"].to_pylist(), strict=True)
        by_row = dict(zip(found.rows.tolist(), rows, strict=True))
        return [by_row[number] for number in range(len(questions))]


def _question(prompt: ChatPrompt, shown: Mapping[str, str], name: str, read: Callable[[object], object]) -> Question:
    said = json.dumps(prompt.messages(shown)[1:])
    key = hashlib.sha256(f"{prompt.digest()} {said}".encode()).hexdigest()[:32]
    return Question(key, name, lambda unreadable: prompt.messages(shown, unreadable), read)


def query_in(reply: object) -> str:
    """The query of a reply.

    Raises:
        Unreadable: it holds none.
    """
    said = object_in(reply).get("query")
    if not isinstance(said, str) or not said.strip():
        raise Unreadable("query is no text")
    return " ".join(said.split())


def alone_in(reply: object) -> bool:
    """What a reply says of a query.

    Raises:
        Unreadable: neither true nor false.
    """
    said = object_in(reply).get("self_contained")
    if not isinstance(said, bool):
        raise Unreadable("self_contained is neither true nor false")
    return said


def _told(reply: str | None) -> bool | None:
    return None if reply is None else alone_in(reply)
