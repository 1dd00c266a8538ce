"""Settings of the sequence-to-sequence query writer, read by its engine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from darklode.schemas.generation import GenerateSettings
from darklode.schemas.paths import FolderOrName
from darklode.schemas.pooling import LocalModel
from darklode.schemas.shared import ModelPath


class Seq2SeqSettings(LocalModel, GenerateSettings):
    """A sequence-to-sequence model of transformers, trained to generate queries (docT5query)."""

    kind: Literal["t5"] = "t5"
    model: FolderOrName[str] = Field("castorini/doc2query-t5-base-msmarco", description=ModelPath)
    max_seq_length: int | None = Field(512, gt=0, description=LocalModel.model_fields["max_seq_length"].description)
    max_new_tokens: int = Field(64, gt=0, description="Maximum length of a query in tokens.")
    top_k: int = Field(10, gt=0, description="Top-k sampling (docT5query: 10).")
