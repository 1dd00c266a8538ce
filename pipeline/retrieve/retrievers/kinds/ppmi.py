"""Nearest neighbours in the mean of word vectors from PPMI, weighted by smooth inverse frequency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from darklode.pipeline.retrieve.retrievers.kinds import FittedKind

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.lsa import TermVectors
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus


class Ppmi(FittedKind):
    """Nearest neighbours in the mean of word vectors from PPMI, weighted by smooth inverse frequency."""

    kind: Literal["ppmi"] = "ppmi"

    def fit(self, corpus: Corpus) -> TermVectors:
        from darklode.pipeline.retrieve.encoders.ppmi import fit_ppmi_sif

        return fit_ppmi_sif(corpus.terms, corpus.word_vectors)


KIND = Ppmi
