"""Overlap in character trigrams: by hand, with typos, and whatever else is asked for beside a pair."""

import numpy as np
import pytest

from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.judge.character_overlap import CharacterOverlap, trigrams

CHUNKS = ["rotate secret", "rotate", "close ticket", "plans prices"]


@pytest.fixture
def overlap() -> CharacterOverlap:
    return CharacterOverlap(TermSpace([CHUNKS]))


def measured(overlap: CharacterOverlap, query: str, text: str) -> list[float]:
    (row,) = overlap([query], [text], np.zeros(1, np.int64), np.zeros(1, np.int64)).tolist()
    return list(row)


def test_trigrams_mark_begin_and_end_of_a_word() -> None:
    assert trigrams("cat") == ["^ca", "cat", "at$"]
    assert trigrams("a") == ["^a$"]


def test_equal_texts_overlap_fully_and_others_not_at_all(overlap: CharacterOverlap) -> None:
    assert measured(overlap, "close ticket", "close ticket") == pytest.approx([1, 1])
    assert measured(overlap, "close ticket", "rotate") == [0, 0]
    assert measured(overlap, "xyz", "rotate") == [0, 0], "no trigram is known"


def test_a_word_with_a_typo_matches_in_part(overlap: CharacterOverlap) -> None:
    cosine, share = measured(overlap, "tickt", "close ticket")
    assert 0 < cosine < 1
    assert measured(overlap, "close", "rotate secret")[1] < share < 1


def test_rare_trigrams_weigh_more(overlap: CharacterOverlap) -> None:
    """Two chunks have "rotate", one has "secret": the share of the latter is larger."""
    query = "rotate secret"
    shares = [
        measured(overlap, query, word)[1] / len(trigrams(stem)) for word, stem in (("rotate", "rotat"), ("secret",) * 2)
    ]
    assert shares[1] > shares[0] > 0


def test_pairs_are_independent_of_their_company(overlap: CharacterOverlap) -> None:
    queries, texts = ["rotate", "close the ticket", "price"], CHUNKS
    query, text = (part.ravel() for part in np.mgrid[0:3, 0:4])
    together = overlap(queries, texts, query, text)
    assert together.shape == (12, 2)
    alone = [measured(overlap, queries[row], texts[column]) for row, column in zip(query, text, strict=True)]
    np.testing.assert_array_equal(together, alone)
