"""Settings of the LLM judge, read by its engine."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, PrivateAttr, field_validator, model_validator

from darklode.pipeline.base.remote.endpoint import Portion
from darklode.schemas.judging import ChatServer, MemberSettings
from darklode.schemas.paths import PathField
from darklode.schemas.section import NoRow, holds_secret, host_and_path


class LlmSettings(ChatServer, MemberSettings):
    """Settings of the kind `llm`."""

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

    @property
    def local_portion(self) -> Portion | None:
        """This worker's share of the limits; None without several workers."""
        return self._portion
