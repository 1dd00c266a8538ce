"""Settings of the LLM judge, read by its engine."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from darklode.pipeline.base.remote.endpoint import Portion
from darklode.schemas.judging import ChatServer, MemberSettings
from darklode.schemas.paths import PathField
from darklode.schemas.section import NoRow, holds_secret, host_and_path
from darklode.schemas.shared import ExtraBody, PromptName, ServerUrl


class LlmSettings(ChatServer, MemberSettings):
    """Settings of the kind `llm`."""

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
    _reverses_examples: bool = PrivateAttr(False)

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
                    "must not contain a user name, password or query; name the key's environment variable in "
                    "api_key_env"
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
        sent = {"max_tokens": 1} | self.extra_body
        caps = [sent.get(name) for name in ("max_tokens", "max_completion_tokens") if sent.get(name) is not None]
        if not caps or not all(type(cap) is int and cap > 0 for cap in caps):
            raise ValueError(
                "spending_limit and token_limit need a maximum reply length: set extra_body.max_tokens or "
                "extra_body.max_completion_tokens to a positive number"
            )
        return self

    @property
    def reverses_examples(self) -> bool:
        """Whether the prompt shows its examples in reverse order, as a probe."""
        return self._reverses_examples

    @property
    def local_portion(self) -> Portion | None:
        """This worker's share of the limits; None without several workers."""
        return self._portion
