"""Term weights from a language model behind an OpenAI-compatible server (`pipeline/mine/term_weighting/llm.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, JsonValue, model_validator

from darklode.pipeline.mine.term_weighting.kinds import PlannerKind
from darklode.schemas.section import NoRow

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.mine.term_weighting.llm import LlmPlanner
    from darklode.schemas.settings import CacheSettings


class LlmPlannerSettings(PlannerKind):
    """A language model, by one call a query."""

    kind: Literal["llm"] = "llm"
    model: str = Field("", description="its name at the server")
    base_url: NoRow[str] = Field("", description="OpenAI-compatible server, such as http://127.0.0.1:8000/v1")
    key_env: NoRow[str] = Field("", description="environment variable with the server's key; empty: none is sent")
    parameters: dict[str, JsonValue] = Field(
        {}, description="sent with every call, such as max_tokens or chat_template_kwargs; null takes one of ours out"
    )
    max_in_flight: NoRow[int] = Field(64, gt=0, description="most calls under way at once")
    timeout: NoRow[float] = Field(60, gt=0, description="seconds until a call counts as failed")
    give_up_after: NoRow[float] = Field(600, gt=0, description="seconds of failing until the run stops")

    @model_validator(mode="after")
    def _names_what_it_needs(self) -> Self:
        if not (self.model and self.base_url):
            raise ValueError("kind llm needs planner.model and planner.base_url")
        return self

    def planner(self, _learned: Tables, cache_settings: CacheSettings) -> LlmPlanner:
        from darklode.pipeline.mine.term_weighting.llm import LlmPlanner

        return LlmPlanner(self, cache_settings.root)

    def missing(self) -> list[str]:
        """The key, or a server that listens."""
        from darklode.pipeline.base.remote.endpoint import server_problems

        return server_problems([self.base_url], self.key_env, self.model)


KIND = LlmPlannerSettings
