"""A term weighter: the longer a word, the more important."""

from typing import Literal

import pyarrow as pa

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.mine.term_weighting.kinds import TermWeighterKind
from darklode.pipeline.mine.term_weighting.port import TermWeighter, Tokenizer, weigh_terms
from darklode.schemas.settings import CacheSettings


class LongWords(TermWeighterKind):
    """A word's length over that of the query's longest word."""

    kind: Literal["long_words"] = "long_words"

    def term_weighter(self, _learned: Tables, _cache_settings: CacheSettings) -> TermWeighter:
        return ByLength()


class ByLength(TermWeighter):
    version = "long words 1"

    def __init__(self) -> None:
        self._tokens = Tokenizer()

    def terms(self, queries: pa.Table) -> pa.Table:
        return weigh_terms(queries, self._weights)

    def _weights(self, _tenant: str, text: str) -> dict[str, float]:
        words = dict.fromkeys(self._tokens.tokenize(text))
        longest = max(map(len, words), default=1)
        return {word: len(word) / longest for word in words}
