"""The encoder that is a sentence-transformers model on this machine's GPU or CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.schemas.pooling import LocalModel
from darklode.schemas.shared import DocumentPrompt, QueryPrompt, TruncateDim

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.sentence_transformers import SentenceTransformersEncoder


class SentenceTransformersSettings(LocalModel, EncoderKind):
    """A sentence-transformers model on this machine's GPU or CPU."""

    kind: Literal["sentence_transformers"] = "sentence_transformers"
    query_prompt: QueryPrompt = ""
    document_prompt: DocumentPrompt = ""
    truncate_dim: TruncateDim = None

    def encoder_id(self) -> str:
        """See `EncoderKind`; the revision is the hub's commit, or a hash over a local folder's files."""
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

    def load(self, _root: str | None = None) -> SentenceTransformersEncoder:
        from darklode.pipeline.retrieve.encoders.sentence_transformers import SentenceTransformersEncoder

        return SentenceTransformersEncoder(self)

    def fetch(self) -> None:
        from darklode.pipeline.base.models.loading import fetch_model

        fetch_model(self)

    def missing(self) -> list[str]:
        """Packages, the model, memory; code of the model's own, which is never run."""
        from darklode.pipeline.base.models.local import missing_for

        return missing_for(self)


KIND = SentenceTransformersSettings
