"""Settings of the LLM term weighter."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.mining import TermWeightingSettings
from darklode.schemas.section import NoRow
from darklode.schemas.shared import (
    ApiKeyEnv,
    ExtraBody,
    MaxConcurrency,
    ModelName,
    RetryTimeout,
    ServerUrl,
    Timeout,
)


class LlmTermWeighterSettings(TermWeightingSettings):
    """A language model, one call per query."""

    kind: Literal["llm"] = "llm"
    model: str = Field("", description=ModelName)
    base_url: NoRow[str] = Field("", description=ServerUrl)
    api_key_env: ApiKeyEnv = ""
    extra_body: ExtraBody = Field({})
    max_concurrency: MaxConcurrency = 64
    timeout: Timeout = 60
    retry_timeout: RetryTimeout = 600

    @model_validator(mode="after")
    def _requires_model_and_server(self) -> Self:
        if not (self.model and self.base_url):
            raise ValueError("kind llm needs term_weighting.model and term_weighting.base_url")
        return self
