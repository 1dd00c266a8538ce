"""The seven embedded retrievers: fitted on the corpus itself, without a model, a download or a key."""

from __future__ import annotations

from collections.abc import Callable

from threadpoolctl import threadpool_limits

from pipeline.encoders.cca import fit_cca
from pipeline.encoders.character_lsa import character_lsa
from pipeline.encoders.linear import TermVectors
from pipeline.encoders.lsa import fit_lsa
from pipeline.encoders.ppmi import fit_ppmi_idf, fit_ppmi_sif
from pipeline.retrievers.corpus import SEED_SETTINGS, Corpus
from pipeline.retrievers.dense import Dense
from pipeline.retrievers.feedback import Feedback
from pipeline.retrievers.port import Retriever

Fit = Callable[[Corpus], TermVectors]
Build = Callable[[Corpus], Retriever]


def _dense(name: str, fit: Fit) -> Build:
    def build(corpus: Corpus) -> Retriever:
        with threadpool_limits(1):  # the number of threads would change a fit's last bits
            encoder = fit(corpus)
        return Dense(name, encoder, corpus.vectors(encoder))

    return build


def _feedback(name: str, fit: Fit) -> Build:
    def build(corpus: Corpus) -> Retriever:
        with threadpool_limits(1):
            encoder = fit(corpus)
        return Feedback(name, encoder, corpus.vectors(encoder), seeds=corpus.seeds)

    return build


EMBEDDED: dict[str, Build] = {
    "bm25": lambda corpus: corpus.bm25(SEED_SETTINGS),
    "lsa_feedback": _feedback("lsa_feedback", lambda c: fit_lsa(c.terms, 96)),
    "ppmi": _dense("ppmi", lambda c: fit_ppmi_sif(c.terms, c.word_vectors)),
    "ppmi_feedback": _feedback("ppmi_feedback", lambda c: fit_ppmi_idf(c.terms, c.word_vectors)),
    "character": _dense("character", lambda c: character_lsa(c.terms, c.character_map, 300)),
    "character_feedback": _feedback("character_feedback", lambda c: character_lsa(c.terms, c.character_map, 64)),
    "cca_feedback": _feedback("cca_feedback", lambda c: fit_cca(c.terms, 100)),
}
"""Name → builder, in the pool's order. A builder fits its retriever on the corpus it is called with.

BM25 by the settings `bm25` is `Corpus.bm25`."""
