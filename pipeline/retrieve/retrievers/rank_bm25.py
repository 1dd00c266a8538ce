"""BM25 with the rank-bm25 package, hundreds of times slower: an independent check of `bm25`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.retrieve.retrievers.bm25 import DELTA, idf
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.retrieve.retrievers.topk import stack_hits, top_k
from darklode.schemas.pooling import Bm25Settings

_MIN_K1 = 1e-9  # with k1 = 0, the package divides 0 by 0 for chunks without the term


class RankBm25(Retriever):
    """The scores of `Bm25`, except for bm25l, which rank-bm25 multiplies by the term count once more.

    With epsilon 0, its BM25Okapi is robertson times k1 + 1; lucene and atire are BM25Okapi with another idf.

    Args:
        batches: texts of the chunks, in batches.
        analyzer: turns chunks and queries into terms.
        settings: method, k1 and b; `engine`, `stemmer` and `stop_words` are ignored.

    Raises:
        MissingPart: rank-bm25 is not installed.
    """

    name = "bm25"

    def __init__(self, batches: Iterable[Sequence[str]], analyzer: Analyzer, settings: Bm25Settings) -> None:
        package = _package()
        corpus = [analyzer.tokenize(text) for batch in batches for text in batch]
        self._n_chunks = len(corpus)
        self._analyzer = analyzer
        self._engine = _engine(package, corpus, settings) if any(corpus) else None
        self._delta = DELTA["bm25+"] if settings.method == "bm25+" else 0.0
        self._scale = settings.k1 + 1 if settings.method in ("robertson", "lucene") else 1.0

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        blocks = [top_k(self._scores(query)[None, :], depth) for query in queries]
        return stack_hits(blocks, min(depth, self._n_chunks))

    def _scores(self, query: str) -> NDArray[np.float32]:
        """Scores of all chunks; NaN for chunks that are no hits."""
        idf = self._engine.idf if self._engine else {}
        terms = [term for term in self._analyzer.tokenize(query) if term in idf]
        if not self._engine or not terms:
            return np.full(self._n_chunks, np.nan, dtype=np.float32)
        with np.errstate(invalid="ignore"):  # an empty chunk with b 1: 0 / 0
            scores = self._engine.get_scores(terms)
        floor = 0.0
        for term in terms:  # one by one, as the package adds them: a chunk without the terms has exactly this score
            floor += idf[term] * self._delta
        return np.where(scores > floor, scores / self._scale, np.nan).astype(np.float32)


def _package() -> Any:
    try:
        return import_module("rank_bm25")
    except ImportError as error:
        message = "bm25.engine rank_bm25 needs the package rank-bm25: pip install rank-bm25, or set bm25.engine: bm25s"
        raise MissingPart(message) from error


def _engine(package: Any, corpus: list[list[str]], settings: Bm25Settings) -> Any:
    k1, b, method = max(settings.k1, _MIN_K1), settings.b, settings.method
    if method in DELTA:
        variant = package.BM25L if method == "bm25l" else package.BM25Plus
        return variant(corpus, k1=k1, b=b, delta=DELTA[method])
    engine = package.BM25Okapi(corpus, k1=k1, b=b, epsilon=0)
    if method != "robertson":
        document_frequencies = Counter(term for chunk in engine.doc_freqs for term in chunk)
        frequency = np.fromiter(document_frequencies.values(), dtype=np.int64, count=len(document_frequencies))
        engine.idf = dict(zip(document_frequencies, idf(method, frequency, len(corpus)).tolist(), strict=True))
    return engine
