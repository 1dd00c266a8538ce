"""Settings of an OpenAI-compatible embeddings endpoint, and the encoder id made of them."""

from typing import Literal

from pydantic import Field, JsonValue

from darklode.schemas.pooling import EncoderSettings
from darklode.schemas.section import NoRow


class EmbeddingsEndpoint(EncoderSettings):
    """An OpenAI-compatible embeddings endpoint; the key comes from the environment."""

    kind: Literal["openai"] = "openai"
    model: str = Field(min_length=1, description="the model's name at the endpoint")
    base_url: str = Field("https://api.openai.com/v1", description="without user name, password or key")
    key_env: NoRow[str] = Field("OPENAI_API_KEY", description="environment variable with the key; empty: none is sent")
    dimensions: int | None = Field(None, gt=0, description="asked of the endpoint; null: the model's own")
    query_prompt: str = Field("", description="text put before every query")
    document_prompt: str = Field("", description="text put before every chunk")
    query_parameters: dict[str, JsonValue] = Field({}, description="sent with queries, such as input_type")
    document_parameters: dict[str, JsonValue] = Field({}, description="sent with chunks, such as input_type")
    max_tokens: int = Field(8192, gt=0, description="longer texts are cut to it (by a careful estimate)")
    batch_texts: NoRow[int] = Field(256, gt=0, description="most texts per request")
    batch_tokens: NoRow[int] = Field(100_000, gt=0, description="most tokens per request (estimated)")
    in_flight: NoRow[int] = Field(8, gt=0, description="most requests under way at once")
    requests_per_minute: NoRow[int | None] = Field(None, gt=0, description="rate limit; null: none")
    timeout: NoRow[float] = Field(60, gt=0, description="seconds until a request counts as failed")
    give_up_after: NoRow[float] = Field(600, gt=0, description="seconds of failing until the run stops")
    price_per_million: NoRow[float] = Field(0, ge=0, description="price of a million tokens, for the cost shown")
    spending_limit: NoRow[float | None] = Field(None, ge=0, description="stop before this is exceeded; null: no limit")

    def encoder_id(self) -> str:
        """The encoder's id; it depends on the settings only."""
        from darklode.pipeline.base.remote.endpoint import address
        from darklode.pipeline.base.remote.tokens import ESTIMATE
        from darklode.pipeline.retrieve.encoders.port import identity, short_hash

        return identity(
            self.kind,
            f"{self.model}@{address(self.base_url, self.key_env)}",
            dimensions=self.dimensions or "all",
            prompts=short_hash(self.query_prompt, self.document_prompt),
            parameters=short_hash(self.query_parameters, self.document_parameters),
            tokens=f"{self.max_tokens}.{ESTIMATE}",
        )

    def price(self) -> float:
        return self.price_per_million
