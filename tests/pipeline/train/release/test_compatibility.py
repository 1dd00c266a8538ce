"""Recorded search results compared with current ones."""

from darklode.pipeline.train.release.compatibility import SCORE_TOLERANCE, returns_same


def test_lists_return_where_near_scores_change_places() -> None:
    before = [{"text_id": name, "hash": name, "score": score} for name, score in (("a", 0.9), ("b", 0.5), ("c", 0.4))]
    assert returns_same(before, before, {})
    near = [before[0], before[2] | {"score": 0.5}, before[1] | {"score": 0.4}]
    assert returns_same(before, near, {})
    assert not returns_same(before, [before[0] | {"score": 0.9 - 2 * SCORE_TOLERANCE}, *before[1:]], {})
    assert not returns_same(before, before[:2], {})
    assert returns_same(before, [*before[:2], {"text_id": "d", "score": 0.4}], {})
    assert not returns_same(before, [before[0], {"text_id": "d", "score": 0.5}, before[2]], {})


def test_in_an_index_that_changed_what_is_still_there_has_its_score() -> None:
    before = [{"text_id": "a", "hash": "1", "score": 0.9}, {"text_id": "b", "hash": "2", "score": 0.5}]
    hashes = {"new": "9", "a": "1", "b": "other"}
    found = [{"text_id": "new", "score": 0.95}, {"text_id": "a", "score": 0.9}, {"text_id": "b", "score": 0.1}]
    assert returns_same(before, found, hashes)
    assert not returns_same(before, [found[0], found[1] | {"score": 0.8}], hashes)
    assert not returns_same(before, found[:1], hashes)
