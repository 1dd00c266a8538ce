"""Rocchio feedback in latent semantic analysis of the words' characters, 64 dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from darklode.pipeline.retrieve.retrievers.kinds import FittedKind

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.lsa import TermVectors
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus


class CharacterFeedback(FittedKind):
    """Rocchio feedback in latent semantic analysis of the words' characters, 64 dimensions."""

    FEEDBACK: ClassVar[bool] = True

    kind: Literal["character_feedback"] = "character_feedback"

    def fit(self, corpus: Corpus) -> TermVectors:
        from darklode.pipeline.retrieve.encoders.lsa import character_lsa

        return character_lsa(corpus.terms, corpus.character_map, 64)


KIND = CharacterFeedback
