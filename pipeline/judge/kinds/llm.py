"""The LLM judge as a kind: how it is built, identified, estimated and checked; its engine is `pipeline/judge/llm`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Self

from darklode.pipeline.base.errors import DarklodeError, SettingsError
from darklode.pipeline.base.remote.endpoint import Portion
from darklode.pipeline.judge.kinds import LedgerKind
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.schemas.settings import CacheSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.judge.estimate import Estimate
    from darklode.pipeline.judge.llm.judge import LlmJudge

_LOG = logging.getLogger("darklode.judge")


class LlmJudgeKind(LlmSettings, LedgerKind):
    """A language model behind OpenAI-compatible servers."""

    IS_PROBED: ClassVar[bool] = True

    def source(self, cache_settings: CacheSettings) -> LlmJudge:
        from darklode.pipeline.judge.llm.judge import LlmJudge

        return LlmJudge(self, _LOG.warning, cache_settings.root)

    @property
    def max_workers(self) -> int:
        """Each worker has at least one call in flight."""
        return self.max_concurrency

    def portion(self, cache_settings: CacheSettings, share: float, at_once: int) -> Self:
        """With a share of the concurrent calls and of the remaining limits."""
        from darklode.pipeline.base.remote.budget import SpendingLedger
        from darklode.pipeline.judge.llm.judge import endpoint_of

        portion_settings = self.model_copy(update={"max_concurrency": max(1, self.max_concurrency // at_once)})
        used, cost = SpendingLedger(cache_settings.root, endpoint_of(self).account).total()
        tokens = None if self.token_limit is None else int(max(0, self.token_limit - sum(used)) * share)
        money = None if self.spending_limit is None else max(0.0, self.spending_limit - cost) * share
        portion_settings._portion = Portion(tokens, money)
        return portion_settings

    def with_reversed_examples(self) -> Self | None:
        from darklode.pipeline.judge.llm.prompt import load_prompt

        if len(load_prompt(self.prompt).examples) < 2:
            return None
        reversed_settings = self.model_copy()
        reversed_settings._reverses_examples = True
        return reversed_settings

    def max_attempts_in_all(self) -> int:
        return self.max_attempts

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a verdict; the prompt by its text, not its name."""
        from darklode.pipeline.judge.llm.prompt import load_prompt

        return super().identity | {"prompt": load_prompt(self.prompt).digest}

    def prices(self) -> tuple[float, float]:
        return self.prompt_price_per_million, self.completion_price_per_million

    def grades(self) -> dict[int, str]:
        """Grades of the prompt; empty if the prompt no longer exists."""
        from darklode.pipeline.judge.llm.prompt import load_prompt

        try:
            return load_prompt(self.prompt).grades
        except SettingsError:
            return {}

    def estimate(self, tables: Tables, cache_settings: CacheSettings, seed: int) -> Estimate:
        """Estimate cost and time from a sample of calls, whose replies are kept in the ledger."""
        from darklode.pipeline.judge.ledger import Ledger
        from darklode.pipeline.judge.llm.estimate import estimate

        return estimate(tables, self.source(cache_settings), Ledger(cache_settings.root), self, seed=seed)

    def missing(self) -> list[str]:
        """Missing key, unreachable server, or invalid prompt."""
        from darklode.pipeline.base.remote.endpoint import server_problems
        from darklode.pipeline.judge.llm.prompt import load_prompt

        missing = server_problems(self.base_url, self.api_key_env, self.model)
        try:
            load_prompt(self.prompt)
        except DarklodeError as error:
            missing.append(str(error))
        return missing


KIND = LlmJudgeKind
