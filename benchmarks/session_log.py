"""Simulated search sessions over labelled collections: reformulations, rankings by BM25, and position-biased clicks.

A topic is a set of relevant documents. A session is about one topic; its queries are the collection's own wordings of
the topic where it has several, else words of the topic's text, which the user extends, replaces and removes, also by
words of relevant documents. Every query shows the ten best documents by BM25. A user examines rank r with probability
r^-0.65 and clicks an examined document with a probability that depends on its relevance.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.collections_io import Collection
from darklode.pipeline.base.query_normalization import normal_form
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.schemas.mined_tables import IMPRESSIONS
from darklode.schemas.tables import TABLES

FIRST = date(2026, 3, 1)
DAYS = 10
SHOWN, DEPTH = 10, 80
MEAN_QUERIES = 3.4
"""Queries of a session: the mean of the TREC Session Track 2013."""
SESSIONS_PER_TOPIC = 3
EXAMINATION_POWER = 0.65
DRIFT_SHARE = 0.25
"""Share of the topics that follow another in a session. TREC's sessions have one topic; users' own often more."""
START_WORDS = (2, 4)
"""Minimum and maximum number of words of a session's first query."""

MIN_WORD_DOCUMENTS = 3
"""Words in fewer documents are not searched for: most are misspelled, or of the wording only."""

Topics = dict[str, frozenset[int]]
"""Relevant document rows of each query text (normal form)."""


@dataclass(frozen=True)
class ClickNoise:
    """How users click on documents that they examine.

    Attributes:
        relevant: click probability of a relevant document.
        other: click probability of any other document.
    """

    relevant: float
    other: float


TREC_NOISE = ClickNoise(0.5, 0.2)
"""About as informative as the clicks of the TREC Session Track 2013, where .207 of the documents shown and .403 of the
clicked ones are relevant."""
CLEAN_NOISE = ClickNoise(0.5, 0.05)


@dataclass(frozen=True)
class SessionLog:
    """A simulated log and its truth.

    Attributes:
        impressions: rows of the table `impressions`.
        documents: rows of the table `documents`.
        relevant: relevant document rows of each query's normal form; a query of several topics has those of all.
        topics: topics of each query's normal form.
    """

    impressions: pa.Table
    documents: pa.Table
    relevant: dict[str, set[int]]
    topics: dict[str, set[int]]


def simulate(collection: Collection, seed: int, noise: ClickNoise, sessions: int = SESSIONS_PER_TOPIC) -> SessionLog:
    """Simulate the sessions of all topics.

    Args:
        collection: documents, queries and labels.
        seed: seed of users and sessions.
        noise: how users click.
        sessions: mean number of sessions per topic; popularity is exponentially distributed.
    """
    generator = np.random.default_rng(seed)
    wordings = _wordings(collection)
    writer = _QueryWriter(collection, generator)
    relevant_sets = list(wordings)
    counts = np.minimum(1 + generator.exponential(sessions - 1, len(wordings)).astype(int), 4 * sessions)
    order = generator.permutation(np.repeat(np.arange(len(wordings)), counts))
    session_queries: list[list[tuple[int, str]]] = []
    for topic in order.tolist():
        texts_of_topic = writer.session(wordings[relevant_sets[topic]], relevant_sets[topic])
        if not session_queries or generator.random() >= DRIFT_SHARE:
            session_queries.append([])
        session_queries[-1] += [(topic, text) for text in texts_of_topic]
    texts = sorted({text for queries in session_queries for _, text in queries})
    shown = dict(zip(texts, bm25_lists(collection, texts), strict=True))
    columns: dict[str, list[object]] = {name: [] for name in IMPRESSIONS.schema.names}
    topics: dict[str, set[int]] = {}
    relevant: dict[str, set[int]] = {}
    for number, queries in enumerate(session_queries):
        start = datetime.combine(FIRST + timedelta(number * DAYS // len(session_queries)), datetime.min.time(), UTC)
        for place, (topic, text) in enumerate(queries):
            form = normal_form(pa.array([text]))[0].as_py()
            topics.setdefault(form, set()).add(topic)
            relevant.setdefault(form, set()).update(relevant_sets[topic])
            searched = start + timedelta(minutes=number % 1300, seconds=20 * place)
            clicks = _clicks(shown[text], relevant_sets[topic], noise, generator)
            _append(columns, f"s{number}", f"{number}-{place}", searched, text, shown[text], clicks)
    return SessionLog(_impressions(columns), _documents(collection), relevant, topics)


def _wordings(collection: Collection) -> dict[frozenset[int], list[str]]:
    """The queries of each topic, that is of each set of relevant documents."""
    wordings: dict[frozenset[int], list[str]] = {}
    for text, relevant in zip(collection.queries, collection.relevant, strict=True):
        wordings.setdefault(frozenset(relevant.tolist()), []).append(text)
    return wordings


class _QueryWriter:
    """Writes the queries of a session."""

    def __init__(self, collection: Collection, generator: np.random.Generator) -> None:
        self._generator = generator
        self._texts: dict[int, str] = {}
        for owner, chunk in zip(collection.owners.tolist(), collection.chunks, strict=True):
            self._texts.setdefault(owner, chunk)
        self._analyzer = Analyzer()
        self._document_words = {row: set(self._words(text)) for row, text in self._texts.items()}
        self._frequency = Counter(word for words in self._document_words.values() for word in words)

    def session(self, wordings: list[str], relevant: frozenset[int]) -> list[str]:
        """The queries of a session, one after the other."""
        n_queries = int(self._generator.geometric(1 / MEAN_QUERIES))
        if len(wordings) > 1:
            return [str(text) for text in self._generator.permutation(wordings)[:n_queries]]
        words = self._pick(
            self._words(wordings[0]), relevant, int(self._generator.integers(*START_WORDS, endpoint=True))
        )
        queries = [" ".join(words)]
        for _ in range(n_queries - 1):
            words = self._reformulate(words, self._words(wordings[0]), relevant)
            queries.append(" ".join(words))
        return list(dict.fromkeys(queries))

    def _reformulate(self, words: list[str], topic_words: list[str], relevant: frozenset[int]) -> list[str]:
        """Add, replace or remove a word; the shares are those of the reformulations in TREC's sessions, roughly."""
        is_from_document = self._generator.random() < 0.3
        document = int(self._generator.choice(sorted(relevant)))
        new = self._pick(self._words(self._texts[document]) if is_from_document else topic_words, relevant, 1)
        kind = self._generator.random()
        dropped = int(self._generator.integers(len(words)))
        kept = [word for place, word in enumerate(words) if place != dropped]
        if kind < 0.45:
            return list(dict.fromkeys([*words, *new]))
        if kind < 0.75:
            return list(dict.fromkeys([*kept, *new]))
        return kept or words

    def _pick(self, words: list[str], relevant: frozenset[int], n_words: int) -> list[str]:
        """Distinct words in the order of the text; rare ones, and words of relevant documents, are preferred."""
        distinct = [word for word in dict.fromkeys(words) if self._frequency[word] >= MIN_WORD_DOCUMENTS]
        distinct = distinct or list(dict.fromkeys(words))
        rarity = np.array([np.log(len(self._texts) / (1 + self._frequency[word])) for word in distinct]).clip(0.1)
        of_relevant = [sum(word in self._document_words[row] for row in relevant) / len(relevant) for word in distinct]
        weights = rarity * (0.05 + np.array(of_relevant))
        n_words = min(n_words, len(distinct))
        chosen = self._generator.choice(len(distinct), n_words, replace=False, p=weights / weights.sum())
        return [distinct[place] for place in sorted(chosen)]

    def _words(self, text: str) -> list[str]:
        """Content words of a text, as written."""
        return [
            word for word in text.lower().replace("\n", " ").split() if word.isalpha() and self._analyzer.stem(word)
        ]


def bm25_lists(collection: Collection, texts: list[str]) -> list[list[int]]:
    """Rows of the ten best documents of each query, by their best chunk."""
    chunks = collection.chunks
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Corpus(lambda: iter([chunks]), len(chunks), Path(scratch))
        rows = own_retrievers()["bm25"](corpus).search(texts, DEPTH).rows
    return [list(dict.fromkeys(collection.owners[ranked[ranked >= 0]].tolist()))[:SHOWN] for ranked in rows]


def _clicks(
    shown: list[int], relevant: frozenset[int], noise: ClickNoise, generator: np.random.Generator
) -> list[bool]:
    examined = generator.random(len(shown)) < np.arange(1, len(shown) + 1) ** -EXAMINATION_POWER
    attraction = np.array([noise.relevant if row in relevant else noise.other for row in shown])
    return list((examined & (generator.random(len(shown)) < attraction)).tolist())


def _append(  # noqa: PLR0913, PLR0917 (a search)
    columns: dict[str, list[object]],
    session: str,
    search: str,
    searched: datetime,
    text: str,
    shown: list[int],
    clicks: list[bool],
) -> None:
    for position, (row, clicked) in enumerate(zip(shown, clicks, strict=True), 1):
        values = {
            "tenant": "default",
            "event_id": f"{search}-{position}",
            "search_id": search,
            "session_id": session,
            "timestamp": searched,
            "query_id": text,
            "query": text,
            "doc_id": str(row),
            "position": position,
            "clicked": clicked,
        }
        for name, column in columns.items():
            column.append(values.get(name))


def _impressions(columns: dict[str, list[object]]) -> pa.Table:
    rows = pa.table(columns, schema=IMPRESSIONS.schema)
    forms = normal_form(rows["query"].combine_chunks())
    ordered = rows.set_column(rows.schema.get_field_index("query_id"), IMPRESSIONS.schema.field("query_id"), forms)
    return ordered.sort_by([("timestamp", "ascending"), ("search_id", "ascending"), ("position", "ascending")])


def _documents(collection: Collection) -> pa.Table:
    texts: dict[int, list[str]] = {}
    for owner, chunk in zip(collection.owners.tolist(), collection.chunks, strict=True):
        title, _, body = chunk.partition("\n\n")
        texts.setdefault(owner, [title]).append(body)
    rows = [
        {
            "tenant": "default",
            "doc_id": str(row),
            "title": title,
            "text": "\n".join(body),
            "source": "",
            "content_hash": "",
        }
        for row, (title, *body) in texts.items()
    ]
    return pa.Table.from_pylist(rows, schema=TABLES["documents"].schema)
