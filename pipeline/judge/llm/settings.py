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
    revision: str | None = Field(None, description="your name for the served weights; part of judge_id")
    trust_name: bool = Field(
        False,
        description="trust judge.model: the model that a server reports is not part of judge_id, and a reply under "
        "another model's name is only a warning",
    )
    base_url: NoRow[tuple[str, ...]] = Field(
        (),
        description="URL of an OpenAI-compatible server; several (a list, or comma-separated) are replicas",
    )
    prompt: Annotated[str, PathField(or_name=True, names=("binary", "graded"))] = Field(
        "binary", description="binary, graded, or a folder like those in prompts/judge"
    )
    mode: Literal["auto", "choice", "json", "text"] = Field(
        "auto", description="output format of labels; auto: the strictest that the server obeys"
    )
    rationale: bool = Field(False, description="request a reason before the label (JSON; many more tokens)")
    parameters: dict[str, JsonValue] = Field(
        {}, description="sent with every request, e.g. chat_template_kwargs; null removes a default"
    )
    max_chunk_tokens: int = Field(
        2048, gt=0, description="maximum chunk length; longer chunks are cut (by a conservative estimate)"
    )
    attempts: int = Field(3, gt=0, description="maximum replies per pair until one is readable")
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
                    "must not contain a user name, password or query; name the key's environment variable in key_env"
                )
            if host_and_path(url) is None:
                raise ValueError("must be URLs such as http://127.0.0.1:8000/v1")
        return urls

    @model_validator(mode="after")
    def _requires_model_and_server(self) -> Self:
        if not self.model:
            raise ValueError("kind llm needs judge.model, the name of the model")
        if not self.base_url:
            raise ValueError("kind llm needs judge.base_url, such as http://127.0.0.1:8000/v1")
        return self

    @model_validator(mode="after")
    def _requires_bounded_replies(self) -> Self:
        if self.spending_limit is None and self.token_limit is None:
            return self
        sent = {"max_tokens": 1} | self.parameters
        caps = [sent.get(name) for name in ("max_tokens", "max_completion_tokens") if sent.get(name) is not None]
        if not caps or not all(type(cap) is int and cap > 0 for cap in caps):
            raise ValueError(
                "a limit needs bounded replies: parameters.max_tokens or max_completion_tokens must be at least 1"
            )
        return self

    @property
    def local_portion(self) -> Portion | None:
        """This worker's share of the limits; None without several workers."""
        return self._portion
