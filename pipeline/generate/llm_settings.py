"""Settings of the LLM query writer, read by its engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from darklode.schemas.generation import GenerateSettings
from darklode.schemas.paths import PathField
from darklode.schemas.shared import PromptName


class LlmWriterSettings(GenerateSettings):
    """Settings of the kind `llm`: prompt and sampling; model, servers, prices and limits are the judge's."""

    kind: Literal["llm"] = "llm"
    prompt: Annotated[str, PathField(or_name=True, names=("default",))] = Field("default", description=PromptName)
    n_examples: int = Field(
        8, ge=0, description="Few-shot examples: real training queries in the prompt, drawn with the seed."
    )
    temperature: float = Field(0.7, ge=0, description="Sampling temperature.")
