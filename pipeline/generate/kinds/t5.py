"""The writer that is a sequence-to-sequence model on this machine, such as docT5query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from darklode.pipeline.generate.kinds import GeneratorKind
from darklode.schemas.paths import FolderOrName
from darklode.schemas.pooling import LocalModel
from darklode.schemas.shared import ModelPath

if TYPE_CHECKING:
    from darklode.pipeline.generate.seq2seq import Seq2SeqWriter
    from darklode.schemas.settings import Settings


class T5Settings(LocalModel, GeneratorKind):
    """A sequence-to-sequence model of transformers that writes queries for a text, such as docT5query."""

    kind: Literal["t5"] = "t5"
    model: FolderOrName[str] = Field("castorini/doc2query-t5-base-msmarco", description=ModelPath)
    max_seq_length: int | None = Field(512, gt=0, description=LocalModel.model_fields["max_seq_length"].description)
    max_new_tokens: int = Field(64, gt=0, description="Maximum length of a query in tokens.")
    top_k: int = Field(10, gt=0, description="Top-k sampling (docT5query: 10).")

    def writer(self, settings: Settings) -> Seq2SeqWriter:  # noqa: ARG002 (of the port)
        from darklode.pipeline.base.models.loading import fetch_model
        from darklode.pipeline.generate.seq2seq import Seq2SeqWriter

        fetch_model(self)
        return Seq2SeqWriter(self)

    def missing(self) -> list[str]:
        from darklode.pipeline.base.models.local import missing_for

        return missing_for(self)


KIND = T5Settings
