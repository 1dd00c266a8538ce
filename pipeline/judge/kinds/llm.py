"""The judge that is a language model behind OpenAI-compatible servers: see `pipeline/judge/llm`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, PrivateAttr, field_validator, model_validator

from darklode.pipeline.base.errors import DarklodeError, SettingsError
from darklode.pipeline.base.remote.endpoint import Portion
from darklode.pipeline.judge.kinds import LedgerKind
from darklode.schemas.judging import ChatServer
from darklode.schemas.paths import PathField
from darklode.schemas.section import NoRow, holds_secret, host_and_path
from darklode.schemas.settings import CacheSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.judge.llm.estimate import Estimate
    from darklode.pipeline.judge.llm.judge import LlmJudge

_LOG = logging.getLogger("darklode.judge")


class LlmSettings(ChatServer, LedgerKind):
    """A language model behind OpenAI-compatible servers."""

    kind: Literal["llm"] = "llm"
    revision: str | None = Field(None, description="your name for the served weights")
    trust_name: bool = Field(
        False,
        description="model says all: what a server says that it serves is no part of judge_id, and a reply in another "
        "model's name is only warned of",
    )
    base_url: NoRow[tuple[str, ...]] = Field(
        (), description="OpenAI-compatible server; several (a list, or with commas) are replicas of one model"
    )
    prompt: Annotated[str, PathField(or_name=True, names=("binary", "graded"))] = Field(
        "binary", description="binary, graded, or a folder like those of prompts/judge"
    )
    mode: Literal["auto", "choice", "json", "text"] = Field(
        "auto", description="how labels are asked for; auto: the first that the server obeys"
    )
    rationale: bool = Field(False, description="ask for a reason before the label: JSON, and many more tokens")
    parameters: dict[str, JsonValue] = Field(
        {}, description="sent with every call, such as chat_template_kwargs; null takes one of ours out"
    )
    max_chunk_tokens: int = Field(2048, gt=0, description="longer chunks are cut to it (by a careful estimate)")
    attempts: int = Field(3, gt=0, description="replies asked for until one can be read")
    _portion: Portion | None = PrivateAttr(None)

    @field_validator("base_url", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("base_url")
    @classmethod
    def _holds_no_secret(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if holds_secret(url):
                raise ValueError("must not hold a user name, password or query: name the key's variable in key_env")
            if host_and_path(url) is None:
                raise ValueError("must be addresses such as http://127.0.0.1:8000/v1")
        return urls

    @model_validator(mode="after")
    def _names_what_it_needs(self) -> Self:
        if not self.model:
            raise ValueError("kind llm needs judge.model, the name of the model")
        if not self.base_url:
            raise ValueError("kind llm needs judge.base_url, such as http://127.0.0.1:8000/v1")
        return self

    @model_validator(mode="after")
    def _limits_what_replies_may_take(self) -> Self:
        if self.spending_limit is None and self.token_limit is None:
            return self
        sent = {"max_tokens": 1} | self.parameters
        caps = [sent.get(name) for name in ("max_tokens", "max_completion_tokens") if sent.get(name) is not None]
        if not caps or not all(type(cap) is int and cap > 0 for cap in caps):
            raise ValueError(
                "a limit needs replies of a limited length: parameters.max_tokens or max_completion_tokens must be "
                "a number from 1"
            )
        return self

    def source(self, cache_settings: CacheSettings) -> LlmJudge:
        from darklode.pipeline.judge.llm.judge import LlmJudge

        return LlmJudge(self, _LOG.warning, cache_settings.root)

    @property
    def local_portion(self) -> Portion | None:
        """What this one may use of the limits, where it is one of several workers."""
        return self._portion

    @property
    def max_workers(self) -> int:
        """See `LedgerKind`; each has at least one call under way."""
        return self.max_in_flight

    def portion(self, cache_settings: CacheSettings, share: float, at_once: int) -> Self:
        """See `LedgerKind`: its part of the calls under way, and of what is left of the limits."""
        from darklode.pipeline.base.remote.budget import SpendingLedger
        from darklode.pipeline.judge.llm.judge import endpoint_of

        portion_settings = self.model_copy(update={"max_in_flight": max(1, self.max_in_flight // at_once)})
        used, cost = SpendingLedger(cache_settings.root, endpoint_of(self).account).total()
        tokens = None if self.token_limit is None else int(max(0, self.token_limit - sum(used)) * share)
        money = None if self.spending_limit is None else max(0.0, self.spending_limit - cost) * share
        portion_settings._portion = Portion(tokens, money)
        return portion_settings

    def max_attempts_in_all(self) -> int:
        return self.attempts

    @property
    def identity(self) -> dict[str, Any]:
        """See `JudgeKind`; the prompt counts by its text."""
        from darklode.pipeline.judge.llm.prompt import load_prompt

        return super().identity | {"prompt": load_prompt(self.prompt).digest}

    def prices(self) -> tuple[float, float]:
        return self.prompt_price_per_million, self.completion_price_per_million

    def grades(self) -> dict[int, str]:
        """See `MemberSettings`; those of the prompt, empty where it is no longer there."""
        from darklode.pipeline.judge.llm.prompt import load_prompt

        try:
            return load_prompt(self.prompt).grades
        except SettingsError:
            return {}

    def estimate(self, tables: Tables, cache_settings: CacheSettings, seed: int) -> Estimate:
        """See `JudgeKind`; it makes some calls, whose replies are kept."""
        from darklode.pipeline.judge.ledger import Ledger
        from darklode.pipeline.judge.llm.estimate import estimate

        return estimate(tables, self.source(cache_settings), Ledger(cache_settings.root), self, seed=seed)

    def missing(self) -> list[str]:
        """A key, a server that listens, a prompt."""
        from darklode.pipeline.base.remote.endpoint import server_problems
        from darklode.pipeline.judge.llm.prompt import load_prompt

        lacking = server_problems(self.base_url, self.key_env, self.model)
        try:
            load_prompt(self.prompt)
        except DarklodeError as error:
            lacking.append(str(error))
        return lacking


KIND = LlmSettings
