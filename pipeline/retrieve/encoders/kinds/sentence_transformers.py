"""The encoder kind `sentence_transformers`: a model on this machine's GPU or CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.prompted_model import PromptedModel

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.sentence_transformers import SentenceTransformersEncoder


class SentenceTransformersSettings(PromptedModel, EncoderKind):
    """A sentence-transformers model on this machine's GPU or CPU."""

    def load(self, _root: str | None = None) -> SentenceTransformersEncoder:
        from darklode.pipeline.retrieve.encoders.sentence_transformers import SentenceTransformersEncoder

        return SentenceTransformersEncoder(self)

    def fetch(self) -> None:
        from darklode.pipeline.base.models.loading import fetch_model

        fetch_model(self)

    def missing(self) -> list[str]:
        """Missing packages, model or memory; a model that needs its own code, which is never run."""
        from darklode.pipeline.base.models.local import missing_for

        return missing_for(self)


KIND = SentenceTransformersSettings
