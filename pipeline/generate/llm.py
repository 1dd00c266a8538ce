"""Queries from a language model behind OpenAI-compatible servers, and its check whether they are self-contained."""

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
from darklode.pipeline.base.memory.parts import resolve_cache
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import Entries, KeyedStore
from darklode.pipeline.base.remote.budget import Counters, SpendingLedger
from darklode.pipeline.base.remote.chat_cache import Question, SingleFlight, UnreadableReply, parse_object
from darklode.pipeline.base.remote.client import Client
from darklode.pipeline.base.remote.tokens import truncate
from darklode.pipeline.generate.llm_settings import LlmWriterSettings
from darklode.pipeline.generate.port import OUTPUT_SCHEMA, QueryWriter
from darklode.pipeline.judge.kinds.llm import LlmJudgeKind
from darklode.pipeline.judge.llm.judge import endpoint_of
from darklode.schemas.settings import CacheSettings

_LOG = logging.getLogger("darklode.generate")

MAX_TEXT_TOKENS = 1024  # estimated tokens after which a text is truncated in the prompt

CACHED_REPLIES = RowKind(
    "generations",
    "writer",
    ("question",),
    pa.schema([pa.field("reply", pa.string()), pa.field("error", pa.string())]),
    answer="reply",
)
"""A cached reply; `question` is a hash of the prompt and its values."""


class LlmWriter(QueryWriter):
    """Generates queries with a language model.

    One call generates a query per text, and another checks that the query is self-contained. Replies are cached as they
    arrive, so that a stopped run continues without repeating calls.

    Args:
        settings: settings of the writer: prompt, temperature, number of few-shot examples.
        judge: the run's judge, whose model, servers and limits the writer uses.
        root: folder of the cache; None: the user's cache folder.
    """

    has_cache = True

    def __init__(self, settings: LlmWriterSettings, judge: LlmJudgeKind, root: str | None) -> None:
        self._settings = settings
        self._judge = judge
        self._root = root
        self._prompt = ChatPrompt.load("generate", settings.prompt, "examples", "text")
        self._self_contained_prompt = ChatPrompt.load("generate", "self_contained", "query")
        # Cached replies are found by this id: whatever changes the replies must be in it, and nothing else.
        prompts = f"{self._prompt.digest()} {self._self_contained_prompt.digest()}"
        identity_text = f"{prompts} {settings.temperature:g} {settings.n_examples}"
        extra_body = f" {json.dumps(judge.extra_body, sort_keys=True)}" if judge.extra_body else ""
        model = f"{judge.model} {judge.revision or ''}".strip()
        self.generator_id = f"llm writer 1 {model} {identity_text} {MAX_TEXT_TOKENS}{extra_body}"

    @cached_property
    def _client(self) -> Client:
        endpoint = endpoint_of(self._judge)
        return Client(endpoint, SpendingLedger(self._root, endpoint.account), _LOG.warning)

    @cached_property
    def _store(self) -> KeyedStore:
        return KeyedStore(self._root, CACHED_REPLIES)

    @cached_property
    def _entries(self) -> Entries:
        """This writer's cached replies, opened once, because opening reads every key."""
        self._store.merge_small_parts(self.generator_id)
        return self._store.open(self.generator_id)

    @property
    def counters(self) -> Counters:
        return self._client.counters

    @property
    def max_workers(self) -> int:
        return self._judge.max_workers

    def portion(self, share: float, at_once: int) -> LlmWriter:
        """A writer with a share (0 to 1) of the judge's remaining limits, for one of `at_once` concurrent shards."""
        cache = resolve_cache(CacheSettings(root=self._root))
        return LlmWriter(self._settings, self._judge.portion(cache, share, at_once), cache.root)

    def write(self, texts: pa.Table, examples: list[str], on_progress: Callable[[int], None]) -> pa.Table:
        """Generate queries (see `QueryWriter`).

        Raises:
            DarklodeError: no call succeeds, or a limit is reached; earlier replies stay cached.
        """
        questions = [self._generation_question(row, examples) for row in texts.to_pylist()]
        answers = self._answers(questions, self._settings.temperature, on_progress)
        queries = [None if reply is None else query_in(reply) for reply, _ in answers]
        non_null = [query for query in queries if query is not None]
        verdicts = iter(
            self._answers([self._self_contained_question(query) for query in non_null], 0.0, lambda _done: None)
        )
        self_contained = [None if query is None else _parse_self_contained(next(verdicts)[0]) for query in queries]
        return pa.table([queries, [error for _, error in answers], self_contained], schema=OUTPUT_SCHEMA)

    def _generation_question(self, row: Mapping[str, Any], examples: list[str]) -> Question:
        """The call that generates a query for a text, with random few-shot examples."""
        rng = np.random.default_rng(row["draw"])
        count = min(self._settings.n_examples, len(examples))
        sampled_examples: list[str] = []
        if count:
            sampled_examples = [examples[position] for position in rng.choice(len(examples), count, replace=False)]
        passage_text = "\n".join(filter(None, [row["title"], row["heading"], row["text"]]))
        text = truncate(passage_text, MAX_TEXT_TOKENS)
        return _question(
            self._prompt, {"examples": "\n".join(sampled_examples), "text": text}, f"text {row['chunk_id']}", query_in
        )

    def _self_contained_question(self, query: str) -> Question:
        """The call that checks whether a query is self-contained."""
        return _question(self._self_contained_prompt, {"query": query}, f"query {query[:60]!r}", self_contained_in)

    def _answers(
        self, questions: list[Question], temperature: float, on_progress: Callable[[int], None]
    ) -> list[tuple[str | None, str | None]]:
        """Reply and error of each question, one of which is None; calls the model for those without a cached reply."""
        entries = self._entries
        keys = [question.key for question in questions]
        key_table = pa.table({"question": pa.array(keys, pa.string())})
        if keys and len(entries.find(key_table).rows) < len(keys):
            entries.refresh()  # another process may have added replies
        cached_keys = set(np.array(keys)[entries.find(key_table).rows].tolist()) if keys else set()
        uncached = {question.key: question for question in questions if question.key not in cached_keys}
        if uncached:
            request = {"model": self._judge.model, "temperature": temperature, **self._judge.extra_body}
            SingleFlight(self._client, self._store, request).ask(self.generator_id, uncached.values(), on_progress)
            entries.refresh()
        cached = entries.find(key_table)
        rows = zip(cached.values["reply"].to_pylist(), cached.values["error"].to_pylist(), strict=True)
        by_row = dict(zip(cached.rows.tolist(), rows, strict=True))
        return [by_row[number] for number in range(len(questions))]


def _question(prompt: ChatPrompt, values: Mapping[str, str], name: str, read: Callable[[object], object]) -> Question:
    """A call of the model.

    Args:
        prompt: the prompt template.
        values: values of the template's variables.
        name: name of the question in messages.
        read: parses a reply; raises UnreadableReply.
    """
    content = json.dumps(prompt.messages(values)[1:])
    key = hashlib.sha256(f"{prompt.digest()} {content}".encode()).hexdigest()[:32]
    return Question(key, name, lambda unreadable: prompt.messages(values, unreadable), read)


def query_in(reply: object) -> str:
    """The query in a reply.

    Raises:
        UnreadableReply: the reply has none.
    """
    value = parse_object(reply).get("query")
    if not isinstance(value, str) or not value.strip():
        raise UnreadableReply("query is not a text")
    return " ".join(value.split())


def self_contained_in(reply: object) -> bool:
    """Whether a reply calls a query self-contained.

    Raises:
        UnreadableReply: neither true nor false.
    """
    value = parse_object(reply).get("self_contained")
    if not isinstance(value, bool):
        raise UnreadableReply("self_contained is neither true nor false")
    return value


def _parse_self_contained(reply: str | None) -> bool | None:
    """The verdict in a reply; None without a reply."""
    return None if reply is None else self_contained_in(reply)
