"""Settings of the sequence-to-sequence query writer, read by its engine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from darklode.schemas.generation import GenerateSettings
from darklode.schemas.paths import FolderOrName
from darklode.schemas.pooling import LocalModel


class Seq2SeqSettings(LocalModel, GenerateSettings):
    """A sequence-to-sequence model of transformers, trained to generate queries (docT5query)."""

    kind: Literal["t5"] = "t5"
    model: FolderOrName[str] = Field(
        "castorini/doc2query-t5-base-msmarco",
        description="name on the Hugging Face Hub, a local folder, or package:NAME",
    )
    max_tokens: int | None = Field(
        512, gt=0, description="maximum text length; longer texts are cut; null: the model's limit"
    )
    query_tokens: int = Field(64, gt=0, description="maximum length of a query")
    top_k: int = Field(10, gt=0, description="top-k sampling (docT5query: 10)")
