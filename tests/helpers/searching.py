"""Small searches: a retriever that counts shared words, and builders of what it reads."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.retrieve.search import SEARCH, search
from darklode.schemas.pooling import PoolSettings
from darklode.schemas.tables import CHUNKS, QUERIES
from helpers.runs import execute, put, read

Rows = Sequence[tuple[str, str, str]]
Build = Callable[[Corpus], Retriever]


class SharedWords(Retriever):
    """Ranks chunks by the words that they share with the query; finds none that shares no word."""

    def __init__(self, name: str, corpus: Corpus, searched: list[tuple[str, str]]) -> None:
        self.name = name
        self._texts = [set(text.split()) for batch in corpus.batches() for text in batch]
        assert len(self._texts) == corpus.n_chunks
        self._searched = searched

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        self._searched += [(self.name, query) for query in queries]
        k = min(depth, len(self._texts))
        rows, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan, np.float32)
        for number, query in enumerate(queries):
            shared = [len(set(query.split()) & text) for text in self._texts]
            found = sorted((row for row in range(len(shared)) if shared[row]), key=lambda row: (-shared[row], row))[:k]
            rows[number, : len(found)] = found
            scores[number, : len(found)] = [shared[row] for row in found]
        return Hits(rows, scores)


def retrievers(searched: list[tuple[str, str]], names: Sequence[str] = ("one", "two")) -> Mapping[str, Build]:
    return {name: lambda corpus, name=name: SharedWords(name, corpus, searched) for name in names}  # type: ignore[misc]


def queries(rows: Rows) -> pa.Table:
    n = len(rows)
    tenant, ids, texts = ([row[column] for row in rows] for column in range(3))
    fixed = {"n_words": [1] * n, "language": ["en"] * n, "language_score": [1.0] * n, "cluster_id": [0] * n}
    named = {"tenant": tenant, "query_id": ids, "text": texts, "n_represented": [1] * n, "split": ["train"] * n}
    return QUERIES.rows(named | fixed)


def chunks(rows: Rows) -> pa.Table:
    n = len(rows)
    tenant, ids, texts = ([row[column] for row in rows] for column in range(3))
    numbers = {"position": [0] * n, "start": [0] * n, "end": [len(text) for text in texts]}
    return CHUNKS.rows(
        {"tenant": tenant, "chunk_id": ids, "doc_id": ids, "text": texts, "content_hash": texts} | numbers
    )


def searched(
    run: Run, asked: Rows, corpus: Rows, parts: Mapping[str, Build] | None = None, depth: int = 420
) -> list[tuple[str, str]]:
    """Search, and return what the retrievers were asked."""
    calls: list[tuple[str, str]] = []
    put(run, "queries", queries(asked))
    put(run, "chunks", chunks(corpus))
    searching(run, retrievers(calls) if parts is None else parts, depth)
    return calls


def searching(run: Run, parts: Mapping[str, Build], depth: int = 420) -> Manifest:
    chosen = PoolSettings(depth=1, search_depth=depth)
    return execute(run, SEARCH, lambda tables, output: search(tables, output, chosen, retrievers=parts))


def lists(run: Run) -> dict[tuple[object, ...], list[tuple[object, object]]]:
    """Each list as (chunk, score), once its ranks have been seen to count from 1."""
    found: dict[tuple[object, ...], list[tuple[object, object]]] = {}
    for row in read(run, "rankings"):
        ranked = found.setdefault((row["tenant"], row["query_id"], row["retriever"]), [])
        ranked.append((row["chunk_id"], row["score"]))
        assert row["rank"] == len(ranked)
    return found


CORPUS = [("t", "c0", "red"), ("t", "c1", "red green"), ("t", "c2", "blue"), ("t", "c3", "red green blue")]
TWO_TENANTS = [*CORPUS, ("u", "c0", "red"), ("u", "c1", "blue")]
ASKED = [("t", "q0", "red"), ("u", "q0", "red")]

_THINGS = [
    "car engine motor oil wheel",
    "automobile engine motor wheel brake",
    "automobile brake oil engine",
    "banana apple fruit salad",
    "apple pear fruit juice",
    "salad banana juice pear",
]
GARAGE = [*_THINGS * 3, "reconnect the cable plug", "connect the modem wire"]
CARS = {row for row, text in enumerate(GARAGE) if "engine" in text}
SAYS_CAR = {row for row, text in enumerate(GARAGE) if text.startswith("car ")}
RECONNECT, CONNECT = len(GARAGE) - 2, len(GARAGE) - 1


def found(retriever: Retriever, query: str, depth: int) -> list[int]:
    """Rows of the chunks found for one query, best first."""
    (rows,) = retriever.search([query], depth).rows.tolist()
    return [row for row in rows if row >= 0]
