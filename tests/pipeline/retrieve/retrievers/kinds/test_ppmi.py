"""Word vectors from what words meet: a query finds chunks that say the same otherwise."""

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds.ppmi import KIND
from helpers.searching import CARS, SAYS_CAR, found


def test_words_of_like_company_meet(garage: Corpus) -> None:
    retriever = KIND()(garage)
    assert set(found(retriever, "car", len(CARS))) == CARS
    assert set(found(retriever, "car", len(SAYS_CAR))) == SAYS_CAR, "the word itself comes first"


def test_it_is_named_and_fits_its_own_vectors(garage: Corpus) -> None:
    retriever = KIND()(garage)
    assert (retriever.name, KIND().identity, KIND().shares) == ("ppmi", "ppmi", "ppmi")
    assert [path.name.rsplit("-", 3)[0] for path in garage.scratch.glob("*.npy")] == ["ppmi-sif"]
