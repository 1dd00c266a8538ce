"""Term vectors: a vector for each token of the encoder's tokenizer, learned from the texts and their vectors alone.

The encoder's view of a text is predicted from the tokens that the text has; what a query's tokens predict is a second
query vector, in the space of the index, that keeps rare words which the encoder smooths over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.schemas.adaptation_tables import TERM_QUERIES, TERM_VECTORS

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.vectors import FrozenIndex

TERM_VECTORS_STAGE = Stage(
    "term_vectors", 1, ("adaptation_queries", "adaptation_texts"), (TERM_VECTORS.name, TERM_QUERIES.name)
)

RIDGE = 1.0
MAX_TERMS = 12_000
"""Maximum number of tokens, the most frequent ones: their Gram matrix takes 576 MB."""
MAX_TEXTS = 60_000
"""Maximum number of texts in the regression; of more, a sample."""
MAX_VOCABULARY = 1 << 16
"""Maximum size of the tokenizer's vocabulary: the saved encoder has a row for each token, 100 MB at 384 dimensions."""

_BATCH = 1024
"""Texts per call of the tokenizer, and rows of the Gram matrix per sparse product."""


@dataclass(frozen=True)
class TermTable:
    """Vectors of tokens.

    Attributes:
        tokens: token ids, ascending, shape (n_tokens,).
        vectors: shape (n_tokens, dimensions).
    """

    tokens: Ints
    vectors: Floats

    @classmethod
    def from_tables(cls, tables: Tables) -> TermTable:
        """Load `term_vectors`."""
        rows = tables.read(TERM_VECTORS.name).sort_by("token").combine_chunks()
        return cls(rows["token"].to_numpy().astype(np.int64), _array(rows["vector"], len(rows)))

    def of_queries(self, token_ids: Sequence[Sequence[int]]) -> Floats:
        """Sum of a query's token vectors over √n, where n is its number of tokens, unknown and special ones included.

        This is what sentence-transformers' pooling `mean_sqrt_len_tokens` computes.

        Returns:
            Shape (n_queries, dimensions), not normalized.
        """
        with threadpool_limits(limits=1, user_api="blas"):
            sums = _counts(token_ids, self.tokens) @ self.vectors
        lengths = np.array([max(len(ids), 1) for ids in token_ids], np.float32)
        return np.asarray(sums / np.sqrt(lengths)[:, None], np.float32)


@dataclass(frozen=True)
class QueryTokenizer:
    """The tokenizer of a local encoder, as the encoder uses it.

    Attributes:
        tokenizer: fast tokenizer of transformers.
        max_length: tokens that the encoder reads, special ones included; None: any number.
        prompt: prompt of queries.
    """

    tokenizer: Any
    max_length: int | None
    prompt: str

    @classmethod
    def open(cls, encoder: object) -> QueryTokenizer | None:
        """The tokenizer of an encoder; None if it has none that term vectors can be saved with."""
        if not isinstance(encoder, SentenceTransformersSettings):
            return None
        from darklode.pipeline.base.models.loading import load_query_tower

        loaded = load_query_tower(encoder, "cpu")
        tokenizer = getattr(loaded, "tokenizer", None)
        if not hasattr(loaded[0], "auto_model") or not getattr(tokenizer, "is_fast", False):
            return None
        opened = cls(tokenizer, loaded.max_seq_length, encoder.query_prompt)
        return opened if opened.vocabulary <= MAX_VOCABULARY else None

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return int(max(self.tokenizer.get_vocab().values())) + 1

    @property
    def ignored_tokens(self) -> set[int]:
        """Tokens without a vector: special ones, and those of the query prompt, which every query has."""
        return {*self.tokenizer.all_special_ids, *self._ids([self.prompt], special=False)[0]}

    def queries(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of queries with their prompt."""
        return self._ids([self.prompt + text for text in texts], special=True)

    def documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts, without special tokens."""
        return self._ids(texts, special=False)

    def _ids(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        options: dict[str, Any] = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        ids: list[list[int]] = []
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            ids += self.tokenizer(batch, add_special_tokens=special, padding=False, **options)["input_ids"]
        return ids


def write_term_vectors(tables: Tables, output: Output, base: BaseEncoder, *, enabled: bool, seed: int) -> None:
    """Fit term vectors on the texts, and write them with the vector that each query's tokens give.

    Writes nothing if they are not enabled, or the encoder has no local tokenizer with at most `MAX_VOCABULARY` tokens.

    Args:
        tables: the tables of `adaptation_pairs`; no label is read.
        output: receives `term_vectors` and `term_queries`.
        base: the encoder to adapt.
        enabled: whether a method can use them.
        seed: draws the texts if there are more than `MAX_TEXTS`.
    """
    opened = QueryTokenizer.open(base.encoder) if enabled else None
    n_texts = 0
    if opened is not None:
        frozen = base.open(tables)
        positions, token_ids = _sample(base, frozen, opened, seed)
        n_texts = len(positions)
        terms = fit_term_vectors(token_ids, frozen.take(positions), opened.ignored_tokens)
        output.write(TERM_VECTORS.name, TERM_VECTORS.rows({"token": terms.tokens, "vector": _lists(terms.vectors)}))
        queries = tables.read("adaptation_queries", ["tenant", "query_id", "text"])
        vectors = terms.of_queries(opened.queries(queries["text"].to_pylist()))
        columns = {name: queries[name] for name in ("tenant", "query_id")}
        output.write(TERM_QUERIES.name, TERM_QUERIES.rows(columns | {"vector": _lists(vectors)}))
    output.count(FunnelStep(TERM_VECTORS_STAGE.name, "texts", n_texts, "tokens", output.rows(TERM_VECTORS.name)))


def fit_term_vectors(token_ids: Sequence[Sequence[int]], vectors: Floats, excluded: Collection[int] = ()) -> TermTable:
    """Ridge regression of text vectors on their tokens: min |X·T − (D − mean D)|² + ridge·|T|².

    A row of X has the idf of each token that the text has, scaled to unit length. A token's vector is its row of T
    times its idf, so that a query's vector is a sum.

    Args:
        token_ids: tokens of each text.
        vectors: unit vectors of the texts, shape (n_texts, dimensions).
        excluded: tokens to leave out.
    """
    from scipy import sparse
    from scipy.linalg import cho_factor, cho_solve

    own_tokens = [np.unique(np.asarray(ids, np.int64)) for ids in token_ids]
    frequency = np.bincount(np.concatenate([np.empty(0, np.int64), *own_tokens]))
    frequency[[token for token in excluded if token < len(frequency)]] = 0
    by_frequency = np.lexsort((np.arange(len(frequency)), -frequency))[:MAX_TERMS]
    tokens = np.sort(by_frequency[frequency[by_frequency] > 0])
    if not len(tokens):
        return TermTable(tokens, np.empty((0, vectors.shape[1]), np.float32))
    idf = np.log(1 + len(token_ids) / frequency[tokens]).astype(np.float32)
    present = _counts([ids.tolist() for ids in own_tokens], tokens)
    rows = (present @ sparse.diags_array(idf)).tocsr()
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1))
    rows = (sparse.diags_array((1 / np.maximum(lengths, 1e-12)).astype(np.float32)) @ rows).tocsr()
    with threadpool_limits(limits=1, user_api="blas"):
        right = rows.T @ (vectors - vectors.mean(axis=0))
        factor = cho_factor(_gram(rows), lower=True, overwrite_a=True, check_finite=False)
        solution = cho_solve(factor, right.astype(np.float32), check_finite=False)
    return TermTable(tokens, np.asarray(idf[:, None] * solution, np.float32))


def _gram(rows: csr_array) -> Floats:
    """Xᵀ·X + ridge, in the order that LAPACK overwrites, a block of columns at a time."""
    n = rows.shape[1]
    gram = np.empty((n, n), np.float32, order="F")
    transposed = rows.T.tocsr()
    for start in range(0, n, _BATCH):
        gram[:, start : start + _BATCH] = (transposed[start : start + _BATCH] @ rows).toarray().T
    gram[np.diag_indices(n)] += RIDGE
    return gram


def _counts(token_ids: Sequence[Sequence[int]], tokens: Ints) -> csr_array:
    """How often each text has each of some tokens, shape (n_texts, n_tokens)."""
    from scipy import sparse

    flat = np.concatenate([np.asarray(ids, np.int64) for ids in token_ids] or [np.empty(0, np.int64)])
    text = np.repeat(np.arange(len(token_ids)), [len(ids) for ids in token_ids])
    column = np.minimum(np.searchsorted(tokens, flat), max(len(tokens) - 1, 0))
    has_vector = tokens[column] == flat if len(tokens) else np.zeros(len(flat), bool)
    values = np.ones(int(has_vector.sum()), np.float32)
    return sparse.csr_array((values, (text[has_vector], column[has_vector])), shape=(len(token_ids), len(tokens)))


def _sample(
    base: BaseEncoder, frozen: FrozenIndex, tokenizer: QueryTokenizer, seed: int
) -> tuple[Ints, list[list[int]]]:
    """Positions and tokens of at most `MAX_TEXTS` different texts."""
    _, first_rows = np.unique(frozen.position_of, return_index=True)
    draws = np.random.default_rng([seed, 4])  # 4 tells this random stream apart from others of the same seed
    drawn = np.sort(draws.permutation(first_rows)[:MAX_TEXTS])
    token_ids: list[list[int]] = []
    for first, texts in _texts(base, frozen):
        low, high = np.searchsorted(drawn, [first, first + len(texts)])
        token_ids += tokenizer.documents(texts.take(pa.array(drawn[low:high] - first)).to_pylist())
    return frozen.position_of[drawn], token_ids


def _texts(base: BaseEncoder, frozen: FrozenIndex) -> Iterator[tuple[int, pa.Array]]:
    """The texts of all runs as the encoder reads them, with the row of each table's first one."""
    tenant, first = frozen.texts["tenant"][0].as_py(), 0
    for number in frozen.numbers.tolist():
        for _, texts in base.sources[number].iterate_hashes(tenant):
            yield first, texts
            first += len(texts)


def term_queries(tables: Tables, query_ids: pa.Array) -> Floats | None:
    """The vectors that the queries' tokens give, shape (n_queries, dimensions); None if there are no term vectors."""
    if TERM_QUERIES.name not in tables or not tables.rows(TERM_QUERIES.name):
        return None
    rows = tables.read(TERM_QUERIES.name).combine_chunks()
    vectors = _array(rows["vector"], len(rows))
    rows_of_queries: Ints = pc.index_in(query_ids, rows["query_id"].combine_chunks()).to_numpy()
    return vectors[rows_of_queries]


def _array(column: pa.ChunkedArray, n_rows: int) -> Floats:
    flat = pc.list_flatten(column).to_numpy().astype(np.float32, copy=False)
    return flat.reshape(n_rows, -1) if n_rows else np.empty((0, 0), np.float32)


def _lists(vectors: Floats) -> pa.Array:
    """Rows as an Arrow list column."""
    n, width = vectors.shape
    offsets = pa.array((np.arange(n + 1, dtype=np.int64) * width).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1)))
