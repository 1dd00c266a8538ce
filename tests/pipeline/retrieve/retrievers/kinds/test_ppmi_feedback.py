"""Feedback among word vectors that are weighted by idf."""

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds.ppmi import Ppmi
from darklode.pipeline.retrieve.retrievers.kinds.ppmi_feedback import KIND
from helpers.searching import CARS, found


def test_what_bm25_found_leads_further(garage: Corpus) -> None:
    assert set(found(KIND()(garage), "car", len(CARS))) == CARS


def test_it_shares_word_vectors_and_weights_them_otherwise(garage: Corpus) -> None:
    assert (KIND()(garage).name, KIND().identity) == ("ppmi_feedback", "ppmi_feedback")
    assert KIND().shares == Ppmi().shares
    assert [path.name.rsplit("-", 3)[0] for path in garage.scratch.glob("*.npy")] == ["ppmi-idf"]
