"""Rocchio feedback in the idf-weighted mean of word vectors from PPMI."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from darklode.pipeline.retrieve.retrievers.kinds import FittedKind

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.lsa import TermVectors
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus


class PpmiFeedback(FittedKind):
    """Rocchio feedback in the idf-weighted mean of word vectors from PPMI."""

    FEEDBACK: ClassVar[bool] = True

    kind: Literal["ppmi_feedback"] = "ppmi_feedback"

    def fit(self, corpus: Corpus) -> TermVectors:
        from darklode.pipeline.retrieve.encoders.ppmi import fit_ppmi_idf

        return fit_ppmi_idf(corpus.terms, corpus.word_vectors)


KIND = PpmiFeedback
