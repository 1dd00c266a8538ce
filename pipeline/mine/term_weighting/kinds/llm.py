"""The LLM term weighter as a kind (`pipeline/mine/term_weighting/llm.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from darklode.pipeline.mine.term_weighting.kinds import TermWeighterKind
from darklode.pipeline.mine.term_weighting.llm_settings import LlmTermWeighterSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.mine.term_weighting.llm import LlmTermWeighter
    from darklode.schemas.settings import CacheSettings


class LlmTermWeighterKind(LlmTermWeighterSettings, TermWeighterKind):
    """A language model, one call per query."""

    def term_weighter(self, _learned: Tables, cache_settings: CacheSettings) -> LlmTermWeighter:
        from darklode.pipeline.mine.term_weighting.llm import LlmTermWeighter

        return LlmTermWeighter(self, cache_settings.root)

    def missing(self) -> list[str]:
        """Problems with the key, the server or the model."""
        from darklode.pipeline.base.remote.endpoint import server_problems

        return server_problems([self.base_url], self.api_key_env, self.model)


KIND = LlmTermWeighterKind
