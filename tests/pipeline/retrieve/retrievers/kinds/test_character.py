"""Character LSA: words of one family meet, seeds play no part."""

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds.character import KIND
from helpers.searching import CONNECT, RECONNECT, SAYS_CAR, found


def test_a_word_finds_those_of_its_family(garage: Corpus) -> None:
    retriever = KIND()(garage)
    assert found(retriever, "connect", 2) == [CONNECT, RECONNECT], "which share no stem"
    assert set(found(retriever, "car", 3)) == SAYS_CAR


def test_it_is_named_and_fits_character_vectors_alone(garage: Corpus) -> None:
    retriever = KIND()(garage)
    assert (retriever.name, KIND().identity, KIND().shares) == ("character", "character", "character")
    assert [path.name.split("-")[0] for path in garage.scratch.glob("*.npy")] == ["character"]
