"""The planner that is a language model behind an OpenAI-compatible server: one query a call, many calls at once."""

import hashlib
import json
import re
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from darklode.pipeline.base.memory.heritage import Heritage
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import Entries, KeyedStore
from darklode.pipeline.base.prompts import PromptFolder, Template
from darklode.pipeline.base.quoting import REVISION, Quoting
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.base.remote.budget import Counters, Usage
from darklode.pipeline.base.remote.chat import chat_call
from darklode.pipeline.base.remote.client import Client, Lane
from darklode.pipeline.base.remote.endpoint import Endpoint
from darklode.pipeline.base.remote.faults import Refused
from darklode.pipeline.base.remote.tokens import estimate_tokens
from darklode.pipeline.mine.planners.kinds.llm import LlmPlannerSettings
from darklode.pipeline.mine.planners.port import Planner, Tokens, planned
from darklode.schemas.mined_tables import QUERY_TERMS
from darklode.schemas.section import Section

_LONGEST_ECHO = 2000


class PlannerHead(Section):
    """What prompt.yaml holds."""

    version: int
    again: str


@dataclass(frozen=True)
class PlannerPrompt:
    """System text, user template with `{query}`, and what is said after a reply that could not be read."""

    head: PlannerHead
    system: str
    user: str

    def digest(self, revision: int = REVISION) -> str:
        """Names all that the model is told, besides the query, by a revision of the quoting."""
        told = json.dumps([revision, self.head.model_dump(), self.system, self.user])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @cached_property
    def quoting(self) -> Quoting:
        """Keeps queries apart from the prompt's own marks."""
        return Quoting(self.user)

    def messages(self, query: str, unreadable: str | None = None) -> list[dict[str, str]]:
        """The messages about a query; `unreadable` is the reply before, if it is asked again."""
        quoted = self.quoting.quoted
        turns = [("system", self.system), ("user", Template(self.user).filled({"query": quoted(query)}))]
        if unreadable is not None:
            turns += [("assistant", quoted(unreadable)[:_LONGEST_ECHO] or "(nothing)"), ("user", self.head.again)]
        return [{"role": role, "content": content} for role, content in turns]


def planner_prompt(name: str = "default") -> PlannerPrompt:
    """One of Darklode's prompts by its name.

    Raises:
        SettingsError: there is no such prompt, or it cannot be used.
    """
    folder = PromptFolder.find("planner", name)
    head = folder.parsed("prompt.yaml", TypeAdapter(PlannerHead))
    return PlannerPrompt(head, folder.text("system.md"), folder.template("user.md", needed=("query",)))


_FENCE = re.compile(r"\A```\w*\s*(.*?)\s*```\Z", re.S)


class UnreadablePlan(ValueError):
    """The reply holds no importances."""


def importances(reply: object, query: str, tokens: Tokens) -> dict[str, float]:
    """Term → importance of the terms whose words stand side by side in the query; others are ignored.

    Terms are compared by stems and named by them; of two that are the same the greater importance counts.

    Raises:
        UnreadablePlan: the reply is no JSON object, or has a value that is no number from 0 to 1.
    """
    held = f" {' '.join(tokens.of(query))} "
    found: dict[str, float] = {}
    for term, share in _object(reply).items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise UnreadablePlan(f"importance {share!r} is no number from 0 to 1")
        name = " ".join(tokens.of(term))
        if name and f" {name} " in held:
            found[name] = max(found.get(name, 0.0), float(share))
    return found


def _object(reply: object) -> dict[str, object]:
    if not isinstance(reply, str):
        raise UnreadablePlan("the reply has no text")
    fenced = _FENCE.match(reply.strip())
    try:
        read = json.loads(fenced[1] if fenced else reply)
    except (ValueError, RecursionError):
        raise UnreadablePlan("the reply is no JSON") from None
    if not isinstance(read, dict):
        raise UnreadablePlan("the reply is no JSON object")
    return read


ATTEMPTS = 4
KEEP_SECONDS = 0.5
"""A reply waits no longer than this until it is kept: with the calls under way, what a kill may cost."""
QUERIES_AT_ONCE = 1 << 12
"""Replies that are read from the store together."""

PLANS = RowKind(
    "plans",
    "planner",
    ("query_hash",),
    pa.schema([pa.field("reply", pa.string()), pa.field("error", pa.string())]),
    answer="reply",
)
"""What a planner said of a query: the readable reply, or why there is none."""


class LlmPlanner(Planner):
    """Asks for a JSON object of terms and importances, once for each query: replies are kept as they come.

    A reply that cannot be read, or gives an importance outside of 0 to 1, is asked for again, three times at most;
    then the query has no terms, and neither has one that the server refuses. Neither is asked about again.

    Args:
        settings: model, server and limits.
        root: of the cache, where replies are kept over runs; null: the user's cache folder.
        prompt: what the model is told.

    Attributes:
        version: names the model and the prompt.

    Raises:
        SettingsError: base_url is no address.
        MissingPart: the environment has no key of the name that is set.
    """

    def __init__(
        self, settings: LlmPlannerSettings, root: str | None = None, prompt: PlannerPrompt | None = None
    ) -> None:
        self._settings = settings
        self._prompt = prompt or planner_prompt()
        self._tokens = Tokens(every_word=True)
        self._client, self._store = Client(_endpoint(settings)), KeyedStore(root, PLANS)
        self.version, earlier = (f"llm planner 1 {settings.model} {self._prompt.digest(n)}" for n in (REVISION, 1))
        self._heritage = Heritage(self._store, self.version, earlier)

    @property
    def counters(self) -> Counters:
        """What was asked so far; `nulls` counts queries without a readable reply."""
        return self._client.counters

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text; each text is asked about once.

        Raises:
            DarklodeError: no call can succeed, or none has for `give_up_after` seconds. What was answered is kept.
        """
        self._store.tidy(self.version)
        entries, every = self._store.open(self.version), pc.unique(queries["text"])
        self._inherit(_unknown(every, entries))
        entries.refresh()
        self._ask(_unknown(every, entries))
        entries.refresh()
        blocks = (queries.slice(at, QUERIES_AT_ONCE) for at in range(0, queries.num_rows, QUERIES_AT_ONCE))
        return pa.concat_tables([QUERY_TERMS.empty(), *(self._read(block, entries) for block in blocks)])

    def _read(self, queries: pa.Table, entries: Entries) -> pa.Table:
        """Rows of `query_terms` by the replies that are kept."""
        found = entries.find(_hashed(queries["text"]))
        texts, replies = queries["text"].take(pa.array(found.rows)).to_pylist(), found.values["reply"].to_pylist()
        read = {
            text: {} if reply is None else importances(reply, text, self._tokens)
            for text, reply in zip(texts, replies, strict=True)
        }
        return planned(queries, lambda _tenant, text: read[text])

    def _inherit(self, texts: pa.Array) -> None:
        """Take over what was said before the quoting of today, where it shows a text as it was shown then."""
        if self._heritage:
            self._heritage.hand_down(_hashed(texts.filter(pa.array(self._prompt.quoting.as_before(texts)))))

    def _ask(self, texts: pa.Array) -> None:
        """Ask about texts, and keep each reply."""
        if not len(texts):
            return
        waiting, since = list[dict[str, str | None]](), time.monotonic()
        with Background() as background:
            replies = background.iterate(self._replies(texts.to_pylist()))
            try:
                for reply in replies:
                    waiting.append(reply)
                    if time.monotonic() - since >= KEEP_SECONDS:
                        self._keep(waiting)
                        waiting, since = [], time.monotonic()
            finally:
                self._keep(waiting)

    def _keep(self, replies: list[dict[str, str | None]]) -> None:
        hashes = _hashed(pa.array([reply.pop("query") for reply in replies], pa.string()))
        for column in PLANS.values.names:
            values = pa.array([reply[column] for reply in replies], pa.string())
            hashes = hashes.append_column(PLANS.values.field(column), values)
        self._store.append(self.version, hashes)

    async def _replies(self, texts: Iterable[str]) -> AsyncGenerator[dict[str, str | None]]:
        async with (
            self._client.session() as session,
            aclosing(session.results(([text] for text in texts), self._plan)) as results,
        ):
            async for some in results:
                for one in some:
                    yield one

    async def _plan(self, text: str, lane: Lane) -> dict[str, str | None]:
        """A row of `PLANS`, with the query's text."""
        said, error = None, ""
        for attempt in range(ATTEMPTS):
            self.counters.asked_again += attempt > 0
            messages = self._prompt.messages(text, said)
            request = {"model": self._settings.model, "temperature": 0, "messages": messages}
            estimate = Usage(sum(estimate_tokens(message["content"]) for message in messages), 0)
            call = chat_call(json.dumps(request).encode(), estimate, f"query {text[:60]!r}")
            try:
                reply = (await lane.call(call))["choices"][0]["message"].get("content")
                importances(reply, text, self._tokens)
            except Refused as refused:
                error = f"the server refused the query, {refused}"
                break
            except UnreadablePlan as unreadable:
                said, error = reply if isinstance(reply, str) else "", str(unreadable)
            else:
                self.counters.answer(null=False)
                return {"query": text, "reply": reply, "error": None}
        self.counters.answer(null=True)
        return {"query": text, "reply": None, "error": error}


def _unknown(texts: pa.Array, entries: Entries) -> pa.Array:
    """The texts that have no entry."""
    return texts.take(pa.array(np.delete(np.arange(len(texts)), entries.find(_hashed(texts)).rows)))


def _hashed(texts: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The keys of queries' texts."""
    digests = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts.to_pylist()]
    return pa.table({"query_hash": pa.array(digests, pa.string())})


def _endpoint(given: LlmPlannerSettings) -> Endpoint:
    return Endpoint(
        section="planner",
        model=given.model,
        base_urls=(given.base_url,),
        path="/chat/completions",
        key_env=given.key_env,
        max_in_flight=given.max_in_flight,
        timeout=given.timeout,
        give_up_after=given.give_up_after,
    )
