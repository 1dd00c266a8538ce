"""One tenant's chunks as the embedded retrievers see them, with what several of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders.character_lsa import fit_character_map
from pipeline.encoders.linear import TermVectors
from pipeline.encoders.ppmi import fit_word_vectors
from pipeline.retrievers.bm25 import Bm25
from pipeline.retrievers.dense import store_vectors
from pipeline.retrievers.feedback import Remembered
from pipeline.terms import TermSpace

_BLOCK_CHUNKS = 8_192


class Corpus:
    """One tenant's chunks. What is fitted is fitted at its first use and kept.

    Args:
        batches: gives the chunks' texts batch by batch, in chunk order, each time it is called; a text is
            "title\\nheading\\ntext".
        n_chunks: how many there are, at least 1.
        scratch: an existing folder for the memory-mapped vectors; nobody else may write to it.
    """

    def __init__(self, batches: Callable[[], Iterator[Sequence[str]]], n_chunks: int, scratch: Path) -> None:
        self.batches = batches
        self.n_chunks = n_chunks
        self.scratch = scratch

    @cached_property
    def terms(self) -> TermSpace:
        """The corpus's terms and counts.

        Raises:
            ValueError: the batches hold another number of chunks than `n_chunks`.
        """
        terms = TermSpace(self.batches())
        if terms.n_chunks != self.n_chunks:
            raise ValueError(
                f"n_chunks is {self.n_chunks}, the batches held {terms.n_chunks} texts; pass the true number"
            )
        return terms

    @cached_property
    def bm25(self) -> Bm25:
        """BM25 over the corpus."""
        return Bm25(self.terms)

    @cached_property
    def seeds(self) -> Remembered:
        """The same, remembering its answers: where the feedback retrievers' seeds come from."""
        return Remembered(self.bm25)

    @cached_property
    def word_vectors(self) -> NDArray[np.float32]:
        """PPMI vectors of the frequent terms, shape (len(terms.frequent), at most 300)."""
        return fit_word_vectors(self.terms, 300)

    @cached_property
    def character_map(self) -> NDArray[np.float32]:
        """Character-LSA vectors of the frequent terms, shape (len(terms.frequent), at most 300)."""
        return fit_character_map(self.terms, 300)

    def vectors(self, encoder: TermVectors) -> NDArray[np.int16]:
        """Fixed-point vectors of every chunk under `encoder`, shape (n_chunks, dimensions), memory-mapped."""
        counts = self.terms.counts
        starts = range(0, self.n_chunks, _BLOCK_CHUNKS)
        blocks = (encoder.encode_counts(counts[start : start + _BLOCK_CHUNKS]) for start in starts)
        path = self.scratch / f"{encoder.encoder_id.replace(':', '-')}.npy"
        return store_vectors(blocks, self.n_chunks, encoder.dimensions, path)
