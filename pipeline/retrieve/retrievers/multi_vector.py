"""Late interaction (ColBERT): a vector for each token, and the MaxSim of query and chunk.

MaxSim (Khattab and Zaharia 2020, section 3.3): for each query token the greatest inner product with a token of the
chunk, summed over the query's tokens. Vectors are rounded as in `topk.fixed_point`, so no block size can change a
score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.models.running import RunningModel
from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.retrieve.encoders.caching import HashedTexts, hash_queries
from darklode.pipeline.retrieve.encoders.encoding_store import EncodingStore
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.retrieve.retrievers.rerank import PairScorer
from darklode.pipeline.retrieve.retrievers.topk import BLOCK_CELLS, FIXED_POINT_STEPS, RunningTopK, fixed_point

TOKEN_VECTOR_ROWS = RowKind(
    "token_vectors",
    "encoder",
    ("content_hash",),
    pa.schema([pa.field("n_tokens", pa.int32()), pa.field("vectors", pa.binary())]),
)
"""Cached token vectors of a text: fixed-point numbers of 2 bytes, shape (n_tokens, dimensions), row by row."""

MAX_CHUNKS = 20_000
"""Chunks up to which all are searched: about 0.6 GB of token vectors (125 tokens, 128 dimensions, 2 bytes)."""

_CHUNKS_AT_ONCE = 2_048  # chunks whose token vectors are in memory: about 60 MB
_QUERIES_AT_ONCE = 64
_MAX_LENGTH = 1.01  # of a unit vector in bfloat16


@dataclass(frozen=True)
class TokenVectors:
    """Token vectors of several texts.

    Attributes:
        vectors: fixed-point vectors of all texts, shape (n_tokens, dimensions).
        starts: first token of each text, and the number of tokens, shape (n_texts + 1,); a text has at least one.
    """

    vectors: NDArray[np.int16]
    starts: Ints

    @classmethod
    def from_rows(cls, rows: pa.Table) -> TokenVectors:
        """Token vectors from rows with the values of `TOKEN_VECTOR_ROWS`."""
        n_tokens = rows["n_tokens"].to_numpy().astype(np.int64)
        flat = np.frombuffer(b"".join(rows["vectors"].to_pylist()), np.int16)
        dimensions = len(flat) // max(1, int(n_tokens.sum()))
        return cls(flat.reshape(int(n_tokens.sum()), dimensions), _starts(n_tokens))

    def take(self, texts: Ints) -> TokenVectors:
        """The vectors of some texts, in that order."""
        lengths = np.diff(self.starts)[texts]
        starts = _starts(lengths)
        rows = np.arange(starts[-1]) + np.repeat(self.starts[texts] - starts[:-1], lengths)
        return TokenVectors(self.vectors[rows], starts)

    def blocks(self, n_tokens: int) -> Iterator[tuple[int, TokenVectors]]:
        """Yield blocks of about so many tokens, with the index of their first text; texts stay whole."""
        first, n_texts = 0, len(self.starts) - 1
        while first < n_texts:
            end = max(first + 1, int(np.searchsorted(self.starts, self.starts[first] + n_tokens, side="right")) - 1)
            low, high = self.starts[first], self.starts[end]
            yield first, TokenVectors(self.vectors[low:high], self.starts[first : end + 1] - low)
            first = end


def _starts(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def max_sim(queries: TokenVectors, chunks: TokenVectors) -> Floats:
    """MaxSim of every query with every chunk, shape (n_queries, n_chunks)."""
    products = queries.vectors.astype(np.float32) @ chunks.vectors.astype(np.float32).T  # exact integers
    maxima = np.maximum.reduceat(products, chunks.starts[:-1], axis=1).astype(np.float64)
    return (np.add.reduceat(maxima, queries.starts[:-1], axis=0) / FIXED_POINT_STEPS**2).astype(np.float32)


class MultiVectorModel:
    """A `MultiVectorEncoder` of sentence-transformers, with the prompts and lengths of its own configuration.

    Args:
        running: the model.
        queries: encode with the model's query side.
    """

    def __init__(self, running: RunningModel, *, queries: bool) -> None:
        self._running, self._queries = running, queries

    def __call__(self, texts: list[str]) -> pa.Table:
        """Token vectors: a row with the values of `TOKEN_VECTOR_ROWS` for each text.

        Raises:
            MissingPart: the model or a package is missing.
            DarklodeError: vectors that are not numbers, or longer than 1.
        """
        encoded = self._running.encode(texts, queries=self._queries, convert_to_numpy=True)
        vectors = [
            self._checked(np.asarray(tokens, np.float32), text) for tokens, text in zip(encoded, texts, strict=True)
        ]
        return pa.table(
            {
                "n_tokens": pa.array([len(tokens) for tokens in vectors], pa.int32()),
                "vectors": pa.array([fixed_point(tokens).tobytes() for tokens in vectors], pa.binary()),
            }
        )

    def _checked(self, tokens: Floats, text: str) -> Floats:
        lengths = np.linalg.norm(tokens, axis=1)
        if not (lengths <= _MAX_LENGTH).all():  # also if one is NaN
            raise DarklodeError(
                f"{self._running.settings.model} gave a token vector of length {lengths.max():g} for {text[:60]!r}; "
                "only models with normalized token vectors can be searched"
            )
        return tokens if len(tokens) else np.zeros((1, tokens.shape[1]), np.float32)


class MaxSimScorer(PairScorer):
    """MaxSim of given pairs.

    Memory: the token vectors of 2,048 chunks, and the texts of all chunks to score.

    Args:
        corpus: the tenant's chunks.
        queries: token vectors of queries.
        documents: token vectors of chunks.
    """

    def __init__(self, corpus: Corpus, queries: EncodingStore, documents: EncodingStore) -> None:
        self._corpus, self._queries, self._documents = corpus, queries, documents

    def scores(self, queries: Sequence[str], query: Ints, row: Ints) -> Floats:
        """See `PairScorer`."""
        scores = np.empty(len(row), np.float32)
        if not len(row):
            return scores
        chunk_rows, position = np.unique(row, return_inverse=True)
        hashes, texts = self._corpus.hashed_texts(chunk_rows)
        numbers, query_position = np.unique(query, return_inverse=True)
        query_vectors = TokenVectors.from_rows(self._queries.encodings(hash_queries([queries[n] for n in numbers])))
        for first in range(0, len(chunk_rows), _CHUNKS_AT_ONCE):
            block = slice(first, first + _CHUNKS_AT_ONCE)
            chunk_vectors = TokenVectors.from_rows(self._documents.encodings((hashes[block], texts[block])))
            in_block = np.flatnonzero((position >= block.start) & (position < block.stop))
            order = in_block[np.argsort(query_position[in_block], kind="stable")]
            ends = np.flatnonzero(np.diff(query_position[order])) + 1
            for pairs in np.split(order, ends):
                one_query = query_vectors.take(query_position[pairs[:1]])
                scores[pairs] = max_sim(one_query, chunk_vectors.take(position[pairs] - first))[0]
        return scores


class MultiVectorSearch(Retriever):
    """Exact search of all chunks by MaxSim.

    Memory: about 100 MB; the token vectors are in a file of the corpus, about 30 kB per chunk.

    Args:
        name: the retriever's name in rankings.
        queries: token vectors of queries.
        chunks: token vectors of all chunks.
    """

    def __init__(self, name: str, queries: EncodingStore, chunks: TokenVectors) -> None:
        self.name = name
        self._queries, self._chunks, self._n_chunks = queries, chunks, len(chunks.starts) - 1

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A blank query has no hits."""
        k = min(depth, self._n_chunks)
        hits = Hits(np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), np.nan, np.float32))
        non_blank = np.flatnonzero([bool(text.strip()) for text in queries])
        for start in range(0, len(non_blank), _QUERIES_AT_ONCE):
            block = non_blank[start : start + _QUERIES_AT_ONCE]
            rows = self._queries.encodings(hash_queries([queries[number] for number in block]))
            query_vectors, best = TokenVectors.from_rows(rows), RunningTopK(len(block), k)
            for first, chunks in self._chunks.blocks(BLOCK_CELLS // len(query_vectors.vectors)):
                best.update(max_sim(query_vectors, chunks), first)
            block_hits = best.hits()
            hits.rows[block], hits.scores[block] = block_hits.rows, block_hits.scores
        return hits


def encode_chunks(documents: EncodingStore, chunks: Iterable[HashedTexts], path: Path) -> TokenVectors:
    """Token vectors of all chunks, in a memory-mapped file; missing ones are encoded first.

    Args:
        documents: token vectors of chunks.
        chunks: content hashes and texts of the chunks, in their order.
        path: the file; vectors mapped from an older one of this name are kept.
    """
    lengths, dimensions, incomplete_file = [np.empty(0, np.int64)], 1, path.with_suffix(".part")
    with incomplete_file.open("wb") as file:
        for hashes, texts in chunks:
            for first in range(0, len(hashes), _CHUNKS_AT_ONCE):
                block = slice(first, first + _CHUNKS_AT_ONCE)
                tokens = TokenVectors.from_rows(documents.encodings((hashes[block], texts[block])))
                dimensions = tokens.vectors.shape[1]
                lengths.append(np.diff(tokens.starts))
                file.write(tokens.vectors.tobytes())
    incomplete_file.replace(path)
    vectors = np.memmap(path, np.int16, "r").reshape(-1, dimensions)
    return TokenVectors(vectors, _starts(np.concatenate(lengths)))
