"""The judge that is a language model behind OpenAI-compatible servers: see `pipeline/judge/llm`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from darklode.pipeline.base.errors import DarklodeError, SettingsError
from darklode.pipeline.base.remote.endpoint import Portion
from darklode.pipeline.judge.kinds import LedgerKind
from darklode.schemas.judging import ChatServer
from darklode.schemas.paths import PathField
from darklode.schemas.section import NoRow, holds_secret, host_and_path
from darklode.schemas.settings import CacheSettings
from darklode.schemas.shared import ExtraBody, PromptName, ServerUrl

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.judge.llm.estimate import Estimate
    from darklode.pipeline.judge.llm.judge import LlmJudge

_LOG = logging.getLogger("darklode.judge")


class LlmSettings(ChatServer, LedgerKind):
    """A language model behind OpenAI-compatible servers."""

    kind: Literal["llm"] = "llm"
    revision: str | None = Field(
        None, description="Your label for the served weights, part of judge_id. Change it to judge every pair again."
    )
    trust_model_name: bool = Field(
        False,
        description="Identify the judge by `model` alone: what the server reports is no part of judge_id, and a reply "
        "from another model causes a warning instead of an error.",
    )
    base_url: NoRow[tuple[str, ...]] = Field(
        (),
        description=ServerUrl,
    )
    prompt: Annotated[str, PathField(or_name=True, names=("binary", "graded"))] = Field(
        "binary", description=PromptName
    )
    response_format: Literal["auto", "choice", "json", "text"] = Field(
        "auto",
        description="How the label is constrained: choice (guided choice), json (JSON schema), text (not at all). "
        "auto: the first of these that the server supports.",
    )
    rationale: bool = Field(
        False, description="Ask for a rationale before the label: needs json, and many more tokens."
    )
    extra_body: ExtraBody = Field({})
    max_chunk_tokens: int = Field(
        2048, gt=0, description="Truncate chunks to this many tokens (estimated, rounded up)."
    )
    max_attempts: int = Field(3, gt=0, description="Maximum number of requests per pair until a reply is readable.")
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
                raise ValueError(
                    "must not hold a user name, password or query: put the key into an environment variable and name "
                    "that in api_key_env"
                )
            if host_and_path(url) is None:
                raise ValueError("must be URLs such as http://127.0.0.1:8000/v1")
        return urls

    @model_validator(mode="after")
    def _has_model_and_server(self) -> Self:
        if not self.model:
            raise ValueError("kind llm needs judge.model, the name of the model")
        if not self.base_url:
            raise ValueError("kind llm needs judge.base_url, such as http://127.0.0.1:8000/v1")
        return self

    @model_validator(mode="after")
    def _limits_have_a_maximum_reply_length(self) -> Self:
        if self.spending_limit is None and self.token_limit is None:
            return self
        sent = {"max_tokens": 1} | self.extra_body
        caps = [sent.get(name) for name in ("max_tokens", "max_completion_tokens") if sent.get(name) is not None]
        if not caps or not all(type(cap) is int and cap > 0 for cap in caps):
            raise ValueError(
                "spending_limit and token_limit need a maximum reply length: set extra_body.max_tokens or "
                "extra_body.max_completion_tokens to a positive number"
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
        return self.max_concurrency

    def portion(self, cache_settings: CacheSettings, share: float, at_once: int) -> Self:
        """See `LedgerKind`: its part of the calls under way, and of what is left of the limits."""
        from darklode.pipeline.base.remote.budget import SpendingBook
        from darklode.pipeline.judge.llm.judge import endpoint_of

        portion_settings = self.model_copy(update={"max_concurrency": max(1, self.max_concurrency // at_once)})
        used, cost = SpendingBook(cache_settings.root, endpoint_of(self).account).total()
        tokens = None if self.token_limit is None else int(max(0, self.token_limit - sum(used)) * share)
        money = None if self.spending_limit is None else max(0.0, self.spending_limit - cost) * share
        portion_settings._portion = Portion(tokens, money)
        return portion_settings

    def max_attempts_in_all(self) -> int:
        return self.max_attempts

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
        from darklode.pipeline.base.remote.endpoint import lacks_server
        from darklode.pipeline.judge.llm.prompt import load_prompt

        lacking = lacks_server(self.base_url, self.api_key_env, self.model)
        try:
            load_prompt(self.prompt)
        except DarklodeError as error:
            lacking.append(str(error))
        return lacking


KIND = LlmSettings
