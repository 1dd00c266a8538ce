"""Term weights from a language model behind an OpenAI-compatible server: one query per call, many concurrent calls."""

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
from darklode.pipeline.mine.term_weighting.llm_settings import LlmTermWeighterSettings
from darklode.pipeline.mine.term_weighting.port import TermWeighter, Tokenizer, weigh_terms
from darklode.schemas.mined_tables import QUERY_TERMS


def term_weighting_prompt(name: str = "default") -> ChatPrompt:
    """Load a built-in prompt by name.

    Raises:
        SettingsError: the prompt does not exist or is invalid.
    """
    return ChatPrompt.load("term_weighting", name, "query")


def importances(reply: object, query: str, tokens: Tokenizer) -> dict[str, float]:
    """Importance by term, for terms that occur in the query as a phrase; others are ignored.

    Terms are stemmed; of two equal stems the higher importance counts.

    Raises:
        UnreadableReply: the reply is not a JSON object, or a value is not a number from 0 to 1.
    """
    padded_query = f" {' '.join(tokens.tokenize(query))} "
    weights: dict[str, float] = {}
    for term, importance in parse_object(reply).items():
        if isinstance(importance, bool) or not isinstance(importance, int | float) or not 0 <= importance <= 1:
            raise UnreadableReply(f"importance {importance!r} is not a number from 0 to 1")
        name = " ".join(tokens.tokenize(term))
        if name and f" {name} " in padded_query:
            weights[name] = max(weights.get(name, 0.0), float(importance))
    return weights


QUERY_BATCH = 1 << 12
"""Queries whose replies are read from the store together."""

REPLY_ROWS = RowKind(
    "plans",
    "planner",
    ("query_hash",),
    pa.schema([pa.field("reply", pa.string()), pa.field("error", pa.string())]),
    answer="reply",
)
"""Cached reply to a query: the readable reply, or the reason why there is none."""


class LlmTermWeighter(TermWeighter):
    """Requests a JSON object of terms and importances once per query; replies are cached as they arrive.

    Unreadable replies are requested again, at most three times. A query whose replies stay unreadable, are truncated,
    or are refused by the server has no terms, and is not requested again with the same parameters.

    Args:
        settings: model, server and limits.
        root: folder or s3:// prefix of the cache shared by runs; None: the user's cache folder.
        prompt: the prompt; None: the built-in one.

    Attributes:
        version: model, prompt and parameters; it names the cached replies, so its wording must not change.

    Raises:
        SettingsError: base_url is not a URL.
        MissingPart: the environment variable `api_key_env` is not set.
    """

    def __init__(
        self, settings: LlmTermWeighterSettings, root: str | None = None, prompt: ChatPrompt | None = None
    ) -> None:
        self._prompt = prompt or term_weighting_prompt()
        self._tokenizer = Tokenizer(every_word=True)
        self._client, self._store = Client(_endpoint(settings)), KeyedStore(root, REPLY_ROWS)
        request = {"model": settings.model, "temperature": 0, **settings.extra_body}
        self._single_flight = SingleFlight(self._client, self._store, request)
        sent = f" {json.dumps(settings.extra_body, sort_keys=True)}" if settings.extra_body else ""
        self.version, earlier = (
            f"llm planner 1 {settings.model} {self._prompt.digest(revision)}{sent}" for revision in (REVISION, 1)
        )
        self._earlier_version = EarlierVersion(self._store, self.version, earlier)

    @property
    def counters(self) -> Counters:
        """Calls so far; `nulls` counts queries without a readable reply."""
        return self._client.counters

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text; each text is requested once.

        Raises:
            DarklodeError: no call succeeds for `retry_timeout` seconds; earlier replies stay cached.
        """
        self._store.merge_small_parts(self.version)
        entries, texts = self._store.open(self.version), pc.unique(queries["text"])
        self._inherit_replies(_not_cached(texts, entries))
        entries.refresh()
        self._ask(_not_cached(texts, entries))
        entries.refresh()
        blocks = (queries.slice(at, QUERY_BATCH) for at in range(0, queries.num_rows, QUERY_BATCH))
        return pa.concat_tables([QUERY_TERMS.empty(), *(self._read(block, entries) for block in blocks)])

    def _read(self, queries: pa.Table, entries: Entries) -> pa.Table:
        """Rows of `query_terms` from cached replies."""
        cached = entries.find(_hash_texts(queries["text"]))
        texts, replies = queries["text"].take(pa.array(cached.rows)).to_pylist(), cached.values["reply"].to_pylist()
        read = {
            text: {} if reply is None else importances(reply, text, self._tokenizer)
            for text, reply in zip(texts, replies, strict=True)
        }
        return weigh_terms(queries, lambda _tenant, text: read[text])

    def _inherit_replies(self, texts: pa.Array) -> None:
        """Reuse replies cached before the current quoting, for texts whose prompt did not change."""
        if self._earlier_version:
            self._earlier_version.hand_down(_hash_texts(texts.filter(pa.array(self._prompt.quoting.as_before(texts)))))

    def _question(self, text: str, key: str) -> Question:
        return Question(
            key,
            f"query {text[:60]!r}",
            lambda unreadable: self._prompt.messages({"query": text}, unreadable),
            lambda reply: importances(reply, text, self._tokenizer),
        )

    def _ask(self, texts: pa.Array) -> None:
        """Request and cache replies to texts."""
        if len(texts):
            keys = _hash_texts(texts)["query_hash"].to_pylist()
            self._single_flight.ask(self.version, map(self._question, texts.to_pylist(), keys))


def _not_cached(texts: pa.Array, entries: Entries) -> pa.Array:
    """The texts without a cached reply."""
    return texts.take(pa.array(np.delete(np.arange(len(texts)), entries.find(_hash_texts(texts)).rows)))


def _hash_texts(texts: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Cache keys of texts."""
    digests = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts.to_pylist()]
    return pa.table({"query_hash": pa.array(digests, pa.string())})


def _endpoint(settings: LlmTermWeighterSettings) -> Endpoint:
    return Endpoint(
        section="term_weighting",
        model=settings.model,
        base_urls=(settings.base_url,),
        path="/chat/completions",
        api_key_env=settings.api_key_env,
        max_concurrency=settings.max_concurrency,
        timeout=settings.timeout,
        retry_timeout=settings.retry_timeout,
    )
