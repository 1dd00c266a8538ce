"""A search engine or database as a retriever: its answers, cached by its settings and version, as hits."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.retrieve.retrievers.external_hits import HitMapper, Ranking
from darklode.pipeline.retrieve.retrievers.port import UNUSED_SCHEMA, Hits, Retriever

UNKNOWN_HIT = "hit that is no chunk or document of the tenant"
MIN_UNKNOWN_HITS = 100
"""Hits of which none is known, after which the ids must be wrong: fewer may be of documents that the run lacks."""
STORE_SECONDS = 5.0
"""Maximum seconds until an answer is stored; a kill loses these answers and the calls in flight."""

RANKING_ROWS = RowKind(
    "rankings",
    "retriever",
    ("query_hash",),
    pa.schema([pa.field("ids", pa.list_(pa.string())), pa.field("scores", pa.list_(pa.float32()))]),
)
"""Cached answer to a query: ids as the engine has them, best first, and their scores."""

Answer = tuple[list[str], list[float]]
"""Ids of a query's hits, best first, and their scores."""


class LiveSearch(Protocol):
    """An open connection to a search engine or database.

    Attributes:
        where: name and address, for messages.
    """

    where: str

    def version(self) -> str | None:
        """Version of the searched index, which changes with its content; None if unknown: answers are not cached."""

    def search(self, queries: Sequence[str], k: int) -> Iterator[tuple[int, Answer]]:
        """Search; yields each query's index and its answer, as they arrive.

        Raises:
            DarklodeError: the engine cannot answer.
        """


class ExternalRetriever(Retriever):
    """The rankings of a search engine or database.

    Args:
        name: name of the retriever.
        live: the engine.
        mapper: maps its ids to the tenant's chunks.
        top_k: maximum number of hits to request.
        store: cache of the answers.
        owner: owner of the answers in the cache, without the version of the index: everything that can change them.
    """

    def __init__(
        self, name: str, live: LiveSearch, mapper: HitMapper, top_k: int, store: KeyedStore, owner: str
    ) -> None:
        self.name = name
        self._live, self._mapper, self._top_k, self._store = live, mapper, top_k, store
        version = live.version()
        self._owner = None if version is None else f"{owner} version {version}"
        self._unknown, self._n_hits = Counter[str](), 0

    @property
    def unused(self) -> pa.Table:
        """See `Retriever`: ids of hits that are no chunk or document, each once."""
        n = len(self._unknown)
        columns = {
            "id": list(self._unknown),
            "file": [self._live.where] * n,
            "line": [None] * n,
            "reason": [UNKNOWN_HIT] * n,
            "payload": [f"in {n_rankings} rankings" for n_rankings in self._unknown.values()],
        }
        return pa.table(columns, schema=UNUSED_SCHEMA)

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A blank query has no hits, and is not sent.

        Raises:
            InputError: no id among many hits is a chunk or document.
        """
        k = min(depth, self._top_k)
        texts = list(dict.fromkeys(query for query in queries if query.strip()))
        answers = self._read_cache(texts, k)
        answers |= self._ask([text for text in texts if text not in answers], k)
        no_answer: Answer = ([], [])
        rankings = [
            Ranking(pa.array(ids, pa.string()), np.array(scores, np.float32))
            for ids, scores in (answers.get(query, no_answer) for query in queries)
        ]
        self._count_unknown(rankings)
        return self._mapper.hits(queries, rankings, depth)

    def _read_cache(self, texts: Sequence[str], k: int) -> dict[str, Answer]:
        if self._owner is None:
            return {}
        cached_rows = self._store.open(self._owner).find(
            pa.table({"query_hash": [_query_hash(text, k) for text in texts]})
        )
        ids, scores = (cached_rows.values[name].to_pylist() for name in ("ids", "scores"))
        return {texts[row]: answer for row, *answer in zip(cached_rows.rows.tolist(), ids, scores, strict=True)}  # type: ignore[misc]

    def _ask(self, texts: Sequence[str], k: int) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        new, stored_at = dict[str, Answer](), time.monotonic()
        try:
            for number, answer in self._live.search(texts, k) if texts else ():
                new[texts[number]] = answer
                if time.monotonic() - stored_at > STORE_SECONDS:
                    self._keep(new, k)
                    answers, new, stored_at = answers | new, {}, time.monotonic()
        finally:
            self._keep(new, k)
        return answers | new

    def _keep(self, answers: dict[str, Answer], k: int) -> None:
        if self._owner is None or not answers:
            return
        columns = {
            "query_hash": [_query_hash(text, k) for text in answers],
            "ids": pa.array([ids for ids, _ in answers.values()], pa.list_(pa.string())),
            "scores": pa.array([scores for _, scores in answers.values()], pa.list_(pa.float32())),
        }
        self._store.append(self._owner, pa.table(columns))
        self._store.merge_small_parts(self._owner)

    def _count_unknown(self, rankings: Sequence[Ranking]) -> None:
        """Count hits of unknown ids.

        Raises:
            InputError: no id among many hits is known.
        """
        ids = pa.concat_arrays([pa.array([], pa.string()), *(ranking.ids for ranking in rankings)])
        unknown = ids.filter(self._mapper.resolve(ids)[0].is_null()).to_pylist()
        self._unknown.update(unknown)
        self._n_hits += len(ids)
        if self._n_hits >= MIN_UNKNOWN_HITS and self._n_hits == self._unknown.total():
            examples = ", ".join(repr(name) for name in list(self._unknown)[:3])
            raise InputError(
                f"{self._live.where}: none of {self._n_hits} hits is a chunk or document of tenant "
                f"{self._mapper.tenant}; their ids are {examples}. Set id_path (kind sql: the first column) to the "
                "document's id"
            )


def _query_hash(text: str, k: int) -> str:
    return hashlib.sha256(f"{k} {text}".encode()).hexdigest()[:32]
