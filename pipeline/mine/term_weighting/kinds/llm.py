"""Term weights from a language model behind an OpenAI-compatible server (`pipeline/mine/term_weighting/llm.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from darklode.pipeline.mine.term_weighting.kinds import PlannerKind
from darklode.schemas.section import NoRow
from darklode.schemas.shared import ApiKeyEnv, ExtraBody, MaxConcurrency, ModelName, RetryTimeout, ServerUrl, Timeout

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.mine.term_weighting.llm import LlmPlanner
    from darklode.schemas.settings import CacheSettings


class LlmPlannerSettings(PlannerKind):
    """A language model, with one call per query."""

    kind: Literal["llm"] = "llm"
    model: str = Field("", description=ModelName)
    base_url: NoRow[str] = Field("", description=ServerUrl)
    api_key_env: ApiKeyEnv = ""
    extra_body: ExtraBody = Field({})
    max_concurrency: MaxConcurrency = 64
    timeout: Timeout = 60
    retry_timeout: RetryTimeout = 600

    @model_validator(mode="after")
    def _has_model_and_server(self) -> Self:
        if not (self.model and self.base_url):
            raise ValueError("kind llm needs term_weighting.model and term_weighting.base_url")
        return self

    def planner(self, _learned: Tables, cache_settings: CacheSettings) -> LlmPlanner:
        from darklode.pipeline.mine.term_weighting.llm import LlmPlanner

        return LlmPlanner(self, cache_settings.root)

    def missing(self) -> list[str]:
        """The key, or a server that listens."""
        from darklode.pipeline.base.remote.endpoint import lacks_server

        return lacks_server([self.base_url], self.api_key_env, self.model)


KIND = LlmPlannerSettings
