"""The encoder kind `openai`: an OpenAI-compatible embeddings endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from darklode.pipeline.retrieve.encoders.embeddings_endpoint import EmbeddingsEndpoint
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.openai import OpenAIEncoder


class OpenAISettings(EmbeddingsEndpoint, EncoderKind):
    """An OpenAI-compatible embeddings endpoint; the API key comes from the environment."""

    def load(self, root: str | None = None) -> OpenAIEncoder:
        from darklode.pipeline.retrieve.encoders.openai import OpenAIEncoder

        return OpenAIEncoder(self, root)

    def missing(self) -> list[str]:
        """A missing key, or an endpoint that does not listen."""
        from darklode.pipeline.base.remote.endpoint import server_problems

        return server_problems([self.base_url], self.api_key_env, self.model)


KIND = OpenAISettings
