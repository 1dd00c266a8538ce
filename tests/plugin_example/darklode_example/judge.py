"""A judge: a chunk is relevant where it holds enough of the query's words."""

from typing import Literal

import pyarrow as pa
from pydantic import Field

from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.kinds import Builder, JudgeKind
from darklode.pipeline.judge.port import REPLIES, Judge
from darklode.schemas.settings import CacheSettings


class ShareOfWords(JudgeKind):
    """The share of the query's words that a chunk holds is its probability."""

    kind: Literal["share_of_words"] = "share_of_words"
    shortest: int = Field(3, gt=0, description="shorter words are not counted")

    def builder(self, _cache_settings: CacheSettings) -> Builder:
        def build(_chunks: TenantChunks, threshold: float) -> Judge:
            return WordJudge(self.shortest, threshold)

        return build


class WordJudge(Judge):
    def __init__(self, shortest: int, threshold: float) -> None:
        self._shortest, self._threshold = shortest, threshold

    @property
    def judge_id(self) -> str:
        return f"share_of_words:{self._shortest}:{self._threshold:g}"

    async def judge(self, pairs: pa.Table) -> pa.Table:
        texts = zip(pairs["query"].to_pylist(), pairs["text"].to_pylist(), strict=True)
        said = [self._reply(self._words(query), self._words(text)) for query, text in texts]
        return pa.Table.from_pylist(said, schema=REPLIES)

    def _reply(self, query: set[str], chunk: set[str]) -> dict[str, object]:
        if not query:
            return {"error": "the query has no word that is long enough"}
        share = len(query & chunk) / len(query)
        return {"relevant": share >= self._threshold, "probability": share}

    def _words(self, text: str) -> set[str]:
        return {word for word in text.lower().split() if len(word) >= self._shortest}
