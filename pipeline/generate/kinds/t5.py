"""The docT5query writer as a kind: a local sequence-to-sequence model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from darklode.pipeline.generate.kinds import GeneratorKind
from darklode.pipeline.generate.seq2seq_settings import Seq2SeqSettings

if TYPE_CHECKING:
    from darklode.pipeline.generate.seq2seq import Seq2SeqWriter
    from darklode.schemas.settings import Settings


class T5Kind(Seq2SeqSettings, GeneratorKind):
    """A sequence-to-sequence model of transformers, trained to generate queries (docT5query)."""

    def writer(self, settings: Settings) -> Seq2SeqWriter:  # noqa: ARG002 (of the port)
        from darklode.pipeline.base.models.loading import fetch_model
        from darklode.pipeline.generate.seq2seq import Seq2SeqWriter

        fetch_model(self)
        return Seq2SeqWriter(self)

    def missing(self) -> list[str]:
        from darklode.pipeline.base.models.local import missing_for

        return missing_for(self)


KIND = T5Kind
