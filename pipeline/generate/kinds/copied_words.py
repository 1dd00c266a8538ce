"""Words of the text, as many as a real query has: what any better writer has to beat."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import pyarrow as pa

from darklode.pipeline.generate.kinds import GeneratorKind
from darklode.pipeline.generate.port import QueryWriter, query_table

if TYPE_CHECKING:
    from darklode.schemas.settings import Settings

USUAL = 5
"""Words, where there is no real query to take the length from."""


class CopiedWordsSettings(GeneratorKind):
    """Different words of the text in its order, drawn; as many as a drawn real query has."""

    COPIES: ClassVar[bool] = True
    kind: Literal["copied_words"] = "copied_words"

    def writer(self, settings: Settings) -> CopiedWordsWriter:  # noqa: ARG002 (of the port)
        return CopiedWordsWriter()


class CopiedWordsWriter(QueryWriter):
    """A baseline."""

    generator_id = "copied words 1"

    def write(self, texts: pa.Table, examples: list[str], on_progress: Callable[[int], None]) -> pa.Table:  # noqa: ARG002
        lengths = [len(query.split()) for query in examples] or [USUAL]
        pairs = zip(texts["text"].to_pylist(), texts["draw"].to_pylist(), strict=True)
        return query_table([_words(text, lengths, np.random.default_rng(draw)) for text, draw in pairs])


def _words(text: str, lengths: list[int], draws: np.random.Generator) -> str:
    words = list(dict.fromkeys(text.split()))
    count = min(len(words), lengths[int(draws.integers(len(lengths)))])
    return " ".join(words[position] for position in np.sort(draws.choice(len(words), count, replace=False)))


KIND = CopiedWordsSettings
