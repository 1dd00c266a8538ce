"""Settings of the LLM term weighter, read by its engine."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from darklode.schemas.mining import PlannerSettings
from darklode.schemas.section import NoRow


class LlmTermWeighterSettings(PlannerSettings):
    """A language model, one call per query."""

    kind: Literal["llm"] = "llm"
    model: str = Field("", description="name of the model at the server")
    base_url: NoRow[str] = Field("", description="URL of an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1")
    key_env: NoRow[str] = Field("", description="environment variable of the API key; empty: no key is sent")
    parameters: dict[str, JsonValue] = Field(
        {}, description="sent with every request, e.g. max_tokens or chat_template_kwargs; null removes a default"
    )
    max_in_flight: NoRow[int] = Field(64, gt=0, description="maximum concurrent requests")
    timeout: NoRow[float] = Field(60, gt=0, description="seconds until a request times out")
    give_up_after: NoRow[float] = Field(600, gt=0, description="seconds of consecutive failures until the run stops")

    @model_validator(mode="after")
    def _requires_model_and_server(self) -> Self:
        if not (self.model and self.base_url):
            raise ValueError("kind llm needs planner.model and planner.base_url")
        return self
