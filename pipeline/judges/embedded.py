"""The embedded judge: a formula over the corpus's own statistics. No model, no labels, no network."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from pipeline.corpora import view
from pipeline.judges.meaning import Meaning, products
from pipeline.judges.overlap import Overlap, Tokens, best_window, sums, with_data
from pipeline.judges.port import REPLIES
from pipeline.retrievers.bm25 import Bm25
from pipeline.terms import TermSpace
from schemas.settings import MemberSettings

VERSION = 1
MIDPOINT = 0.6
SLOPE = 10.0
FEEDBACK = 10
"""First finds of BM25 that speak for the query."""

_PAIRS_AT_ONCE = 1 << 13
_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Features:
    """What the judge sees of each pair, every one from 0 to 1, shape (n_pairs,).

    Attributes:
        coverage: idf-weighted share of the query's terms that the chunk holds; terms new to the corpus don't count.
        window: the same within the best 20 terms of the chunk.
        bm25: BM25 score ÷ the query's best score in the corpus.
        meaning: LSA cosine with the query and its first ten finds ÷ the query's best cosine in the corpus.
    """

    coverage: _Floats
    window: _Floats
    bm25: _Floats
    meaning: _Floats

    @property
    def score(self) -> _Floats:
        """Half the words (mean of coverage, window and bm25), half the meaning; 0 for a query of unknown words."""
        words = (self.coverage + self.window + self.bm25) / 3
        return (words + self.meaning) / 2

    @property
    def probability(self) -> _Floats:
        """Logistic in the score, one half at `MIDPOINT`; rounded, so that no unit in the last place decides."""
        return np.round(1 / (1 + np.exp(-SLOPE * (self.score - MIDPOINT))), 6)


class EmbeddedJudge:
    """A first look without a language model, and weak: compare no retrievers by its labels, least of all neural ones.

    It reads no labels. Its formula, its midpoint and its slope are the same for every corpus; they were chosen by
    looking at four test collections (docs/judge.md: figures, also with each collection left out of the choice). The
    probability is monotone in the score, but not calibrated. A pair's reply depends on its texts and on the corpus
    only, not on the pairs it comes with. On another processor or BLAS the fitted dimensions may differ in the last
    bits; `judge_id` then differs too.

    Args:
        space: the terms of the tenant's chunks, as `TenantChunks.batches` shows them.
        settings: `threshold` is the probability from which a pair is relevant.
    """

    def __init__(self, space: TermSpace, settings: MemberSettings) -> None:
        self._space = space
        self._threshold = settings.cut
        self._bm25 = Bm25(space)
        self._overlap = Overlap(space)
        self._meaning = Meaning(space)

    @cached_property
    def judge_id(self) -> str:
        """`embedded-1:` and a hash of the formula's constants, the threshold and everything fitted on the corpus."""
        digest = hashlib.sha256(f"{MIDPOINT} {SLOPE} {self._threshold}\n".encode())
        digest.update(self._space.fingerprint.encode())
        digest.update(self._meaning.vectors.astype("<i2").tobytes())
        return f"embedded-{VERSION}:{digest.hexdigest()[:16]}"

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Reply to each pair (see the port); grade, raw reply, tokens and error are always null."""
        starts = range(0, pairs.num_rows, _PAIRS_AT_ONCE)
        scored = [self.features(pairs.slice(start, _PAIRS_AT_ONCE)).probability for start in starts]
        probability = np.concatenate([np.empty(0), *scored])
        said = {
            "relevant": pa.array(probability >= self._threshold),
            "probability": pa.array(probability.astype(np.float32)),
        }
        columns = [said.get(field.name, pa.nulls(pairs.num_rows, field.type)) for field in REPLIES]
        return pa.Table.from_arrays(columns, schema=REPLIES)

    def features(self, pairs: pa.Table) -> Features:
        """What the formula is computed from, for rows of `PAIRS`."""
        query, queries = _distinct(pairs["query"])
        chunk, chunks = _distinct(view(pairs))
        tokens = Tokens.of(self._space, chunks)
        counts = tokens.counts(len(self._space.vocabulary))
        coverage, window = self._words(self._space.count(queries), tokens, counts, query, chunk)
        return Features(coverage, window, *self._finds(queries, counts, query, chunk))

    def _words(
        self, asked: sparse.csr_matrix, tokens: Tokens, counts: sparse.csr_matrix, query: _Ints, chunk: _Ints
    ) -> tuple[_Floats, _Floats]:
        """Coverage and window."""
        weights = with_data(asked, self._overlap.idf[asked.indices] * asked.data)
        total = np.asarray(weights.sum(axis=1)).ravel()[query]
        held = sums(with_data(counts, np.ones(counts.nnz)), weights, chunk, query)
        return _share(held, total), _share(best_window(tokens, weights, chunk, query), total)

    def _finds(
        self, queries: list[str], counts: sparse.csr_matrix, query: _Ints, chunk: _Ints
    ) -> tuple[_Floats, _Floats]:
        """BM25 and meaning: what depends on what the query finds in the corpus."""
        asked = self._space.count(queries)
        found = self._bm25.search(queries, FEEDBACK)
        top = np.nan_to_num(found.scores).max(axis=1, initial=0)
        score = sums(self._overlap.impacts(counts), asked, chunk, query)
        moved = self._meaning.with_feedback(self._meaning.project(asked), found)
        cosine = products(moved[query], self._meaning.project(counts)[chunk])
        return _share(score, top[query]), _share(cosine, self._meaning.best(moved)[query])


def _distinct(texts: pa.ChunkedArray) -> tuple[_Ints, list[str]]:
    """Row of each text among the distinct ones, and those."""
    coded = texts.combine_chunks().dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()


def _share(part: NDArray[np.generic], whole: NDArray[np.generic]) -> _Floats:
    """part ÷ whole within 0 and 1; 0 where the whole is 0."""
    known = np.asarray(whole, dtype=np.float64)
    shares = np.divide(part, known, out=np.zeros(len(known)), where=known > 0)
    return np.asarray(np.clip(shares, 0.0, 1.0))
