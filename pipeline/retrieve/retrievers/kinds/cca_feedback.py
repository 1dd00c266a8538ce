"""Rocchio feedback in the canonical correlation of a chunk's span and its rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from darklode.pipeline.retrieve.retrievers.kinds import FittedKind

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.lsa import TermVectors
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus


class CcaFeedback(FittedKind):
    """Rocchio feedback in the canonical correlation of a chunk's span and its rest."""

    FEEDBACK: ClassVar[bool] = True

    kind: Literal["cca_feedback"] = "cca_feedback"

    def fit(self, corpus: Corpus) -> TermVectors:
        from darklode.pipeline.retrieve.encoders.cca import fit_cca

        return fit_cca(corpus.terms, 100)


KIND = CcaFeedback
