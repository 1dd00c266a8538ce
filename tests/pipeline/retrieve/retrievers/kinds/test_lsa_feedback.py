"""Feedback in latent semantic analysis."""

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds.lsa_feedback import KIND
from helpers.searching import CARS, SAYS_CAR, found


def test_what_bm25_found_leads_further(garage: Corpus) -> None:
    retriever = KIND()(garage)
    assert set(found(retriever, "car", len(CARS))) == CARS
    assert set(found(retriever, "car", len(SAYS_CAR))) == SAYS_CAR


def test_it_is_named_and_fits_its_own_vectors(garage: Corpus) -> None:
    retriever = KIND()(garage)
    assert (retriever.name, KIND().identity, KIND().shares) == ("lsa_feedback", "lsa_feedback", "lsa")
    assert [path.name.split("-")[0] for path in garage.scratch.glob("*.npy")] == ["lsa"]
