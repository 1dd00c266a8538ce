"""Inverse cloze task (Lee, Chang and Toutanova 2019): a sentence of the text is the query for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

import pyarrow as pa

from darklode.pipeline.base.segmentation import draw_long_sentence
from darklode.pipeline.generate.kinds import GeneratorKind
from darklode.pipeline.generate.port import QueryWriter, query_table

if TYPE_CHECKING:
    from darklode.schemas.settings import Settings


class IctSettings(GeneratorKind):
    """Inverse cloze task: a sentence of the text, which also stays in the text, since documents are frozen."""

    COPIES: ClassVar[bool] = True
    kind: Literal["ict"] = "ict"

    def writer(self, settings: Settings) -> InverseClozeWriter:  # noqa: ARG002 (of the port)
        return InverseClozeWriter()


class InverseClozeWriter(QueryWriter):
    """A random sentence of at least four words, or the whole text without one."""

    generator_id = "ict 1"

    def write(self, texts: pa.Table, examples: list[str], on_progress: Callable[[int], None]) -> pa.Table:  # noqa: ARG002
        pairs = zip(texts["text"].to_pylist(), texts["draw"].to_pylist(), strict=True)
        return query_table([draw_long_sentence(text, (draw >> 11) / 2**53) for text, draw in pairs])


KIND = IctSettings
