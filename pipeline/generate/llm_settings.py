"""Settings of the LLM query writer, read by its engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from darklode.schemas.generation import GenerateSettings
from darklode.schemas.paths import PathField


class LlmWriterSettings(GenerateSettings):
    """Settings of the kind `llm`: prompt and sampling; model, servers, prices and limits are the judge's."""

    kind: Literal["llm"] = "llm"
    prompt: Annotated[str, PathField(or_name=True, names=("default",))] = Field(
        "default", description="default, or a folder like those of prompts/generate"
    )
    examples: int = Field(8, ge=0, description="real train queries that are shown with each text, drawn by the seed")
    temperature: float = Field(0.7, ge=0, description="of the sampling")
    max_text_tokens: int = Field(1024, gt=0, description="longer texts are cut to it (by a careful estimate)")
