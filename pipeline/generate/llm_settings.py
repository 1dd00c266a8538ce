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
        "default", description="default, or a folder like those in prompts/generate"
    )
    examples: int = Field(8, ge=0, description="number of real train queries in the prompt, sampled per text")
    temperature: float = Field(0.7, ge=0, description="sampling temperature")
    max_text_tokens: int = Field(
        1024, gt=0, description="maximum text length; longer texts are cut (by a conservative estimate)"
    )
