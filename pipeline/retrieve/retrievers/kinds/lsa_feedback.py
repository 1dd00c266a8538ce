"""Rocchio feedback in the space of latent semantic analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from darklode.pipeline.retrieve.retrievers.kinds import FittedKind

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.lsa import TermVectors
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus


class LsaFeedback(FittedKind):
    """Rocchio feedback in the space of latent semantic analysis."""

    FEEDBACK: ClassVar[bool] = True

    kind: Literal["lsa_feedback"] = "lsa_feedback"

    def fit(self, corpus: Corpus) -> TermVectors:
        from darklode.pipeline.retrieve.encoders.lsa import fit_lsa

        return fit_lsa(corpus.terms, 96)


KIND = LsaFeedback
