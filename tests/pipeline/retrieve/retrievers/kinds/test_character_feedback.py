"""Feedback among letters: what BM25 found leads to chunks that share no word with the query."""

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds.character import Character
from darklode.pipeline.retrieve.retrievers.kinds.character_feedback import KIND
from helpers.searching import CARS, found


def test_what_bm25_found_leads_further(garage: Corpus) -> None:
    assert set(found(KIND()(garage), "car", len(CARS))) == CARS
    assert set(found(Character()(garage), "car", len(CARS))) != CARS, "without feedback it does not"


def test_it_shares_what_it_fits_with_the_one_it_is_named_after(garage: Corpus) -> None:
    assert (KIND()(garage).name, KIND().identity) == ("character_feedback", "character_feedback")
    assert KIND().shares == Character().shares
