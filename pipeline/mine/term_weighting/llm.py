"""The planner that is a language model behind an OpenAI-compatible server: one query a call, many calls at once."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.chat_prompt import ChatPrompt
from darklode.pipeline.base.memory.owner_migration import EarlierVersion
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import Entries, KeyedStore
from darklode.pipeline.base.quoting import REVISION
from darklode.pipeline.base.remote.budget import Counters
from darklode.pipeline.base.remote.chat_cache import Question, SingleFlight, UnreadableReply, parse_object
from darklode.pipeline.base.remote.client import Client
from darklode.pipeline.base.remote.endpoint import Endpoint
from darklode.pipeline.mine.term_weighting.kinds.llm import LlmPlannerSettings
from darklode.pipeline.mine.term_weighting.port import Planner, Tokenizer, plan_terms
from darklode.schemas.mined_tables import QUERY_TERMS


def planner_prompt(name: str = "default") -> ChatPrompt:
    """One of Darklode's prompts by its name.

    Raises:
        SettingsError: there is no such prompt, or it cannot be used.
    """
    return ChatPrompt.load("planner", name, "query")


def importances(reply: object, query: str, tokens: Tokenizer) -> dict[str, float]:
    """Term → importance of the terms whose words stand side by side in the query; others are ignored.

    Terms are compared by stems and named by them; of two that are the same the greater importance counts.

    Raises:
        Unreadable: the reply is no JSON object, or has a value that is no number from 0 to 1.
    """
    padded_query = f" {' '.join(tokens.tokenize(query))} "
    weights: dict[str, float] = {}
    for term, share in parse_object(reply).items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise UnreadableReply(f"importance {share!r} is no number from 0 to 1")
        name = " ".join(tokens.tokenize(term))
        if name and f" {name} " in padded_query:
            weights[name] = max(weights.get(name, 0.0), float(share))
    return weights


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
    then the query has no terms, and neither has one that the server refuses, nor one whose reply was cut off. None of
    them is asked about again, unless with other parameters.

    Args:
        settings: model, server and limits.
        root: of the cache, where replies are kept over runs; null: the user's cache folder.
        prompt: what the model is told.

    Attributes:
        version: names the model, the prompt and the parameters.

    Raises:
        SettingsError: base_url is no address.
        MissingPart: the environment has no key of the name that is set.
    """

    def __init__(self, settings: LlmPlannerSettings, root: str | None = None, prompt: ChatPrompt | None = None) -> None:
        self._prompt = prompt or planner_prompt()
        self._tokens = Tokenizer(every_word=True)
        self._client, self._store = Client(_endpoint(settings)), KeyedStore(root, PLANS)
        request = {"model": settings.model, "temperature": 0, **settings.parameters}
        self._asking = SingleFlight(self._client, self._store, request)
        sent = f" {json.dumps(settings.parameters, sort_keys=True)}" if settings.parameters else ""
        self.version, earlier = (
            f"llm planner 1 {settings.model} {self._prompt.digest(revision)}{sent}" for revision in (REVISION, 1)
        )
        self._heritage = EarlierVersion(self._store, self.version, earlier)

    @property
    def counters(self) -> Counters:
        """What was asked so far; `nulls` counts queries without a readable reply."""
        return self._client.counters

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text; each text is asked about once.

        Raises:
            DarklodeError: no call can succeed, or none has for `give_up_after` seconds. What was answered is kept.
        """
        self._store.merge_small_parts(self.version)
        entries, every = self._store.open(self.version), pc.unique(queries["text"])
        self._inherit_replies(_not_cached(every, entries))
        entries.refresh()
        self._ask(_not_cached(every, entries))
        entries.refresh()
        blocks = (queries.slice(at, QUERIES_AT_ONCE) for at in range(0, queries.num_rows, QUERIES_AT_ONCE))
        return pa.concat_tables([QUERY_TERMS.empty(), *(self._read(block, entries) for block in blocks)])

    def _read(self, queries: pa.Table, entries: Entries) -> pa.Table:
        """Rows of `query_terms` by the replies that are kept."""
        cached = entries.find(_hash_texts(queries["text"]))
        texts, replies = queries["text"].take(pa.array(cached.rows)).to_pylist(), cached.values["reply"].to_pylist()
        read = {
            text: {} if reply is None else importances(reply, text, self._tokens)
            for text, reply in zip(texts, replies, strict=True)
        }
        return plan_terms(queries, lambda _tenant, text: read[text])

    def _inherit_replies(self, texts: pa.Array) -> None:
        """Take over what was said before the quoting of today, where it shows a text as it was shown then."""
        if self._heritage:
            self._heritage.hand_down(_hash_texts(texts.filter(pa.array(self._prompt.quoting.as_before(texts)))))

    def _question(self, text: str, key: str) -> Question:
        return Question(
            key,
            f"query {text[:60]!r}",
            lambda unreadable: self._prompt.messages({"query": text}, unreadable),
            lambda reply: importances(reply, text, self._tokens),
        )

    def _ask(self, texts: pa.Array) -> None:
        """Ask about texts, and keep each reply."""
        if len(texts):
            keys = _hash_texts(texts)["query_hash"].to_pylist()
            self._asking.ask(self.version, map(self._question, texts.to_pylist(), keys))


def _not_cached(texts: pa.Array, entries: Entries) -> pa.Array:
    """The texts that have no entry."""
    return texts.take(pa.array(np.delete(np.arange(len(texts)), entries.find(_hash_texts(texts)).rows)))


def _hash_texts(texts: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The keys of queries' texts."""
    digests = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts.to_pylist()]
    return pa.table({"query_hash": pa.array(digests, pa.string())})


def _endpoint(settings: LlmPlannerSettings) -> Endpoint:
    return Endpoint(
        section="planner",
        model=settings.model,
        base_urls=(settings.base_url,),
        path="/chat/completions",
        key_env=settings.key_env,
        max_in_flight=settings.max_in_flight,
        timeout=settings.timeout,
        give_up_after=settings.give_up_after,
    )
