"""BM25 as a kind: the section `bm25` behind its name, one index for equal settings."""

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds.bm25 import KIND
from darklode.schemas.pooling import Bm25Settings
from darklode.schemas.settings import Settings
from helpers.searching import CONNECT, SAYS_CAR, found


def test_it_finds_words_and_their_stems_alone(garage: Corpus) -> None:
    retriever = KIND()(garage)
    assert set(found(retriever, "cars", 20)) == SAYS_CAR
    assert found(retriever, "connecting", 20) == [CONNECT]


def test_its_name_means_the_section_and_a_named_one_has_keys_of_its_own() -> None:
    settings = Settings.model_validate({"bm25": {"k1": 0.9}, "retrievers": {"long": {"kind": "bm25", "b": 0.1}}})
    assert KIND.from_settings(settings).identity == settings.bm25.model_dump()
    assert settings.retrievers["long"].identity == Bm25Settings(b=0.1).model_dump()  # type: ignore[attr-defined]


def test_equal_settings_share_an_index(garage: Corpus) -> None:
    assert KIND()(garage) is KIND()(garage)
    assert KIND(k1=0.5)(garage) is not KIND()(garage)
