"""Settings of an OpenAI-compatible embeddings endpoint, and the encoder id made of them."""

from typing import Literal

from pydantic import Field, JsonValue

from darklode.schemas.pooling import EncoderSettings
from darklode.schemas.section import NoRow
from darklode.schemas.shared import (
    ApiKeyEnv,
    BatchSize,
    DocumentPrompt,
    MaxConcurrency,
    QueryPrompt,
    RetryTimeout,
    ServerUrl,
    SpendingLimit,
    Timeout,
)


class EmbeddingsEndpoint(EncoderSettings):
    """An OpenAI-compatible embeddings endpoint; the key comes from the environment."""

    kind: Literal["openai"] = "openai"
    base_url: str = Field("https://api.openai.com/v1", description=ServerUrl)
    api_key_env: ApiKeyEnv = "OPENAI_API_KEY"
    dimensions: int | None = Field(
        None, gt=0, description="Vector length to request from the endpoint. null: the model's own."
    )
    query_prompt: QueryPrompt = ""
    document_prompt: DocumentPrompt = ""
    query_extra_body: dict[str, JsonValue] = Field(
        {}, description="Fields added to requests with queries, such as input_type."
    )
    document_extra_body: dict[str, JsonValue] = Field(
        {}, description="Fields added to requests with chunks, such as input_type."
    )
    max_input_tokens: int = Field(8192, gt=0, description="Truncate texts to this many tokens (estimated, rounded up).")
    batch_size: NoRow[int] = Field(256, gt=0, description=BatchSize)
    max_batch_tokens: NoRow[int] = Field(100_000, gt=0, description="Maximum number of tokens per request (estimated).")
    max_concurrency: MaxConcurrency = 8
    requests_per_minute: NoRow[int | None] = Field(None, gt=0, description="Rate limit. null: none.")
    timeout: Timeout = 60
    retry_timeout: RetryTimeout = 600
    price_per_million: NoRow[float] = Field(
        0, ge=0, description="Price of a million tokens, for the reported cost and the spending limit."
    )
    spending_limit: SpendingLimit = None

    def encoder_id(self) -> str:
        """The encoder's id; it depends on the settings only."""
        from darklode.pipeline.base.remote.endpoint import address
        from darklode.pipeline.base.remote.tokens import ESTIMATE_REVISION
        from darklode.pipeline.retrieve.encoders.port import identity, short_hash

        return identity(
            self.kind,
            f"{self.model}@{address(self.base_url, self.api_key_env)}",
            dimensions=self.dimensions or "all",
            prompts=short_hash(self.query_prompt, self.document_prompt),
            parameters=short_hash(self.query_extra_body, self.document_extra_body),
            tokens=f"{self.max_input_tokens}.{ESTIMATE_REVISION}",
        )

    def price(self) -> float:
        return self.price_per_million
