"""Pools of the labelled collections as the embedded judge sees them: whole, robbed of answers, asked by strangers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.collections_io import LABELLED, Collection, read_collection, read_jsonl
from darklode.pipeline.judge.embedded import EmbeddedJudge, Features
from darklode.pipeline.judge.port import PAIRS, QUERY_BLOCK
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers

EMBEDDED = own_retrievers()
DEPTH = 60
SEED = 7
STRANGERS = 60
"""Queries taken from each other collection."""

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Judged:
    """Pairs of a collection, by query; arrays of shape (n_pairs,) but where it says otherwise.

    Attributes:
        query: query row.
        positive: what people said; pairs of which they said nothing and that are no plain negatives are left out.
        answerable: whether a query has a relevant document in the corpus, shape (n_queries,).
        found_by: which of the seven found the pair, shape (n_pairs, 7).
        absolute: what the judge's formula weighs, shape (n_pairs, 3).
        probability: by the formula as it ships.
        former: score of the judge's first version, each feature divided by the query's own best.
        coverage: idf-weighted share of the query's terms that the chunk holds.
    """

    query: _Ints
    positive: _Bools
    answerable: _Bools
    found_by: _Bools
    absolute: _Floats
    probability: _Floats
    former: _Floats
    coverage: _Floats


def pool(collection: Collection, corpus: Corpus) -> tuple[_Ints, _Ints, _Bools]:
    """Pairs that any of the seven found in its first `DEPTH`: query row, chunk row (sorted by both), found by whom."""
    found = np.zeros((len(EMBEDDED), len(collection.queries), corpus.n_chunks), dtype=bool)
    for number, build in enumerate(EMBEDDED.values()):
        rows = build(corpus).search(collection.queries, DEPTH).rows
        query, place = np.nonzero(rows >= 0)
        found[number, query, rows[query, place]] = True
    query, chunk = np.nonzero(found.any(axis=0))
    return query, chunk, found[:, query, chunk].T


def judged_pool(collection: Collection, unknown: list[tuple[int, int]]) -> Judged:
    """The judge's view of a collection's pool.

    Args:
        collection: a chunk counts as positive if its document does.
        unknown: rows of queries and documents whose chunks are neither positive nor negative.
    """
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Corpus(lambda: iter([collection.chunks]), len(collection.chunks), Path(scratch))
        query, chunk, found_by = pool(collection, corpus)
        kept = ~marked(collection, unknown)[query, collection.owners[chunk]]
        query, chunk, found_by = query[kept], chunk[kept], found_by[kept]
        seen = scores(EmbeddedJudge(corpus.terms), collection, query, chunk)
    relevant = marked(collection, [(row, one) for row, each in enumerate(collection.relevant) for one in each])
    answerable = np.array([len(documents) > 0 for documents in collection.relevant])
    return Judged(query, relevant[query, collection.owners[chunk]], answerable, found_by, *seen)


def marked(collection: Collection, pairs: list[tuple[int, int]]) -> _Bools:
    """True at the pairs of query and document, shape (n_queries, n_documents)."""
    table = np.zeros((len(collection.queries), int(collection.owners.max()) + 1), dtype=bool)
    for query, document in pairs:
        table[query, document] = True
    return table


def scores(judge: EmbeddedJudge, collection: Collection, query: _Ints, chunk: _Ints) -> tuple[_Floats, ...]:
    """Absolute features, probability, former score and coverage of pairs, sorted by query."""
    seen = [judge.features(pairs) for pairs in _pairs(collection, query, chunk)]
    return tuple(
        np.concatenate([of(part) for part in seen])
        for of in (lambda part: part.absolute, lambda part: part.probability, former, lambda part: part.coverage)
    )


def former(features: Features) -> _Floats:
    """The score of version 1: half words, half meaning; it called a pair relevant from 0.6 on."""
    return ((features.coverage + features.window + features.bm25) / 3 + features.meaning) / 2


def _pairs(collection: Collection, query: _Ints, chunk: _Ints) -> Iterator[pa.Table]:
    """Rows of `PAIRS`, block by block; ids and hashes are not looked at."""
    ends = np.searchsorted(query, np.arange(QUERY_BLOCK, len(collection.queries) + QUERY_BLOCK, QUERY_BLOCK))
    texts, asked = pa.array(collection.chunks), pa.array(collection.queries)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        columns = dict.fromkeys(PAIRS.names, pa.repeat("", end - start))
        columns |= dict.fromkeys(("title", "heading"), pa.nulls(end - start, pa.string()))
        columns |= {"query": asked.take(pa.array(query[start:end])), "text": texts.take(pa.array(chunk[start:end]))}
        yield pa.table([columns[name] for name in PAIRS.names], schema=PAIRS)


def cases(name: str, root: Path) -> dict[str, Judged]:
    """A collection's pool whole, without the answers to a third of its queries, and asked by other collections."""
    whole = read_collection(name, root)
    unknown = sources(root / name, whole)
    return {
        "whole": judged_pool(whole, unknown),
        "robbed": judged_pool(robbed(whole), unknown),
        "strangers": judged_pool(asked_by_strangers(whole, root), []),
    }


def sources(folder: Path, collection: Collection) -> list[tuple[int, int]]:
    """Cranfield's papers from which a question came (-1 in the original file): nobody judged them."""
    original = folder / "cranqrel.original"
    if not original.exists():
        return []
    document = {row["_id"]: number for number, row in enumerate(read_jsonl(folder / "corpus.jsonl"))}
    query = {text: number for number, text in enumerate(collection.queries)}
    asked = {row["_id"]: query[row["text"]] for row in read_jsonl(folder / "queries.jsonl") if row["text"] in query}
    rows = [line.split() for line in original.read_text(encoding="utf-8").splitlines()]
    return [(asked[row[0]], document[row[1]]) for row in rows if len(row) == 3 and row[2] == "-1" and row[0] in asked]


def robbed(collection: Collection) -> Collection:
    """The collection without the relevant documents of queries drawn until a third of all has none left."""
    gone = np.empty(0, np.int64)
    for query in np.random.default_rng(SEED).permutation(len(collection.queries)):
        left = [np.setdiff1d(documents, gone) for documents in collection.relevant]
        if np.mean([len(documents) == 0 for documents in left]) >= 1 / 3:
            break
        gone = np.union1d(gone, collection.relevant[query])
    kept = ~np.isin(collection.owners, gone)
    chunks = [text for text, stays in zip(collection.chunks, kept, strict=True) if stays]
    return replace(collection, chunks=chunks, owners=collection.owners[kept], relevant=left)


def asked_by_strangers(collection: Collection, root: Path) -> Collection:
    """The collection with queries of the others, which nothing in it answers."""
    dice = np.random.default_rng(SEED)
    others = [read_collection(name, root).queries for name in LABELLED if name != collection.name]
    drawn = [dice.choice(texts, min(STRANGERS, len(texts)), replace=False) for texts in others]
    queries = [str(text) for texts in drawn for text in texts]
    return replace(collection, queries=queries, relevant=[np.empty(0, np.int64) for _ in queries])


def graded(name: str, root: Path, least: int = 2) -> Judged:
    """The pairs of a collection that people graded, in all its parts; positive from the grade `least` on."""
    collection = read_collection(name, root)
    document = {row["_id"]: number for number, row in enumerate(read_jsonl(root / name / "corpus.jsonl"))}
    first = {number: chunk for chunk, number in reversed(list(enumerate(collection.owners.tolist())))}
    texts = {row["_id"]: row["text"] for row in read_jsonl(root / name / "queries.jsonl")}
    lines = [line for part in sorted((root / name / "qrels").glob("*.tsv")) for line in _lines(part)]
    asked = sorted({query for query, _, _ in lines})
    number = {query: row for row, query in enumerate(asked)}
    rows = sorted((number[query], first[document[one]], int(grade) >= least) for query, one, grade in lines)
    query, chunk, positive = (np.array(column) for column in zip(*rows, strict=True))
    collection = replace(collection, queries=[texts[query] for query in asked])
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Corpus(lambda: iter([collection.chunks]), len(collection.chunks), Path(scratch))
        seen = scores(EmbeddedJudge(corpus.terms), collection, query, chunk)
    answerable = np.bincount(query, positive, len(asked)) > 0
    return Judged(query, positive, answerable, np.zeros((len(query), 0), bool), *seen)


def _lines(part: Path) -> list[list[str]]:
    return [line.split("\t") for line in part.read_text(encoding="utf-8").splitlines()[1:]]
