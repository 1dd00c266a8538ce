"""A planner: the longer a word, the more important."""

from typing import Literal

import pyarrow as pa

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.mine.term_weighting.kinds import PlannerKind
from darklode.pipeline.mine.term_weighting.port import Planner, Tokenizer, plan_terms
from darklode.schemas.settings import CacheSettings


class LongWords(PlannerKind):
    """A word's length over that of the query's longest word."""

    kind: Literal["long_words"] = "long_words"

    def planner(self, _learned: Tables, _cache_settings: CacheSettings) -> Planner:
        return ByLength()


class ByLength(Planner):
    version = "long words 1"

    def __init__(self) -> None:
        self._tokens = Tokenizer()

    def terms(self, queries: pa.Table) -> pa.Table:
        return plan_terms(queries, self._plan)

    def _plan(self, _tenant: str, text: str) -> dict[str, float]:
        words = dict.fromkeys(self._tokens.tokenize(text))
        longest = max(map(len, words), default=1)
        return {word: len(word) / longest for word in words}
