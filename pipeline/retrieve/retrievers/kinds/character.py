"""Nearest neighbours in latent semantic analysis of the words' characters, 300 dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from darklode.pipeline.retrieve.retrievers.kinds import FittedKind

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.lsa import TermVectors
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus


class Character(FittedKind):
    """Nearest neighbours in latent semantic analysis of the words' characters, 300 dimensions."""

    kind: Literal["character"] = "character"

    def fit(self, corpus: Corpus) -> TermVectors:
        from darklode.pipeline.retrieve.encoders.lsa import character_lsa

        return character_lsa(corpus.terms, corpus.character_map, 300)


KIND = Character
