"""Settings of a sentence-transformers model: prompts, dimensions, and the id made of them."""

from typing import Literal

from darklode.schemas.pooling import EncoderSettings, LocalModel
from darklode.schemas.shared import DocumentPrompt, QueryPrompt, TruncateDim


class PromptedModel(LocalModel, EncoderSettings):
    """A sentence-transformers model with the prompts and the dimensions it is used with."""

    kind: Literal["sentence_transformers"] = "sentence_transformers"
    query_prompt: QueryPrompt = ""
    document_prompt: DocumentPrompt = ""
    truncate_dim: TruncateDim = None

    def encoder_id(self) -> str:
        """The encoder's id; its revision is the hub's commit, or a hash of a local folder's files."""
        from darklode.pipeline.base.models.local import versioned_name
        from darklode.pipeline.retrieve.encoders.port import identity, short_hash

        return identity(
            self.kind,
            versioned_name(self),
            prompts=short_hash(self.query_prompt, self.document_prompt),
            tokens=self.max_seq_length or "all",
            dimensions=self.truncate_dim or "all",
            dtype=self.dtype,
        )
