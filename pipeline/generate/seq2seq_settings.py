"""Settings of the sequence-to-sequence query writer, read by its engine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from darklode.schemas.generation import GenerateSettings
from darklode.schemas.paths import FolderOrName
from darklode.schemas.pooling import LocalModel


class Seq2SeqSettings(LocalModel, GenerateSettings):
    """A sequence-to-sequence model of transformers that was trained to ask for a text."""

    kind: Literal["t5"] = "t5"
    model: FolderOrName[str] = Field(
        "castorini/doc2query-t5-base-msmarco", description="on the hub, a local folder, or package:NAME here"
    )
    max_tokens: int | None = Field(512, gt=0, description="longer texts are cut; null: the model's own limit")
    query_tokens: int = Field(64, gt=0, description="of a query, at most")
    top_k: int = Field(10, gt=0, description="tokens that each step draws from (docT5query: 10)")
