"""The pairs of a page: what it shows of each, its neighbours, and texts with the query's terms marked."""

from dataclasses import replace
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.validate.review.pairs import Neighbour
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.review_run import TENANT, opened, put_sample, review_run
from helpers.runs import put


def sample(run: Run, ids: list[tuple[str, str, str]], positions: list[int]) -> None:
    n = len(ids)
    columns = dict(zip(("tenant", "query_id", "chunk_id"), map(list, zip(*ids, strict=True)), strict=True))
    counts = {"pairs": [n] * n, "sampled": [n] * n, "weight": [1.0] * n, "stratum": ["s"] * n, "shared": [True] * n}
    put(run, "review_sample", TABLES["review_sample"].rows({**columns, **counts, "position": positions}))
    put(run, "near_misses", TABLES["near_misses"].empty())


def test_a_pair_has_what_a_page_shows(run: Run) -> None:
    with opened(review_run(run.store.url, 7)) as deck:
        assert (len(deck), deck.queries, deck.tenants) == (7, 2, 1)
        pair = deck[6]
        assert (pair.query_id, pair.query, pair.chunk_id, pair.doc_id, pair.position) == (
            "q1",
            "how do I rotate key 1",
            "doc3#6",
            "doc3",
            0,
        )
        assert (pair.query_number, pair.query_pair, pair.query_pairs) == (2, 2, 2)
        assert (pair.title, pair.heading, pair.url) == ("Keys", "Guide › Rotation", "https://example.org/keys")
        assert deck.rows[pair.name] == 6
        assert deck.shared.tolist() == [True, False, False] * 2 + [True]


def test_near_misses_and_sampled_queries_take_turns_and_near_misses_are_for_one_reviewer(run: Run) -> None:
    with opened(review_run(run.store.url, 20, uncertain={3: 0.4, 9: 0.7, 7: 0.6, 8: 0.0})) as deck:
        pairs = [deck[row] for row in range(len(deck))]
    assert (deck.near_misses, len(pairs), deck.queries) == (2, 18, 6)
    assert [(pair.near_miss, pair.chunk_id, pair.query_number, pair.query_pairs) for pair in pairs[:2]] == [
        (True, "doc4#9", 1, 1),
        (False, "doc0#0", 2, 4),
    ]
    assert (pairs[5].near_miss, pairs[5].chunk_id, pairs[5].query_number) == (True, "doc1#3", 3)
    assert not deck.shared[[0, 5]].any()
    assert not {"doc4#9", "doc1#3"} & {pair.chunk_id for pair in pairs if not pair.near_miss}


def test_a_blind_deck_does_not_know_the_judge(run: Run) -> None:
    review_run(run.store.url, 4)
    with opened(run) as deck:
        assert (deck[0].relevant, deck[0].probability, deck[0].grade) == (None, None, None)
    with opened(run, show_judge=True) as deck:
        assert (deck[0].relevant, deck[1].relevant) == (True, False)
        assert deck[3].probability == pytest.approx(0.9)


def test_pairs_come_by_position_and_a_query_s_together(run: Run) -> None:
    finished_run(run.store.url)
    first, second = ("acme", "q%3", "plain#4"), ("acme", "q 1", "plain#4")
    other = ("b/i rch", "q 1", "plain#4")
    sample(run, [second, other, first, ("acme", "q%3", "../x\ty#2")], [7, 9, 1, 3])
    with opened(run) as deck:
        assert [(one.tenant, one.query_id, one.chunk_id) for one in map(deck.__getitem__, range(4))] == [
            first,
            ("acme", "q%3", "../x\ty#2"),
            second,
            other,
        ]
        assert [deck[row].query_number for row in range(4)] == [1, 1, 2, 3]
        assert deck.tenants == 2


def test_neighbours_are_those_of_the_document(run: Run) -> None:
    with opened(review_run(run.store.url, 6)) as deck:
        assert deck.neighbors(2) == (
            None,
            Neighbour("Guide › Rotation", "Rotating keys, part 3: open Settings.", False),
        )
        assert deck.neighbors(3) == (
            Neighbour("Guide › Rotation", "Rotating keys, part 2: open Settings.", False),
            None,
        )


def test_a_chunk_that_begins_within_code_is_known(run: Run) -> None:
    whole = "Do this:\n```sh\nkey rotate\n```\nDone."
    cut = whole.index("key")
    review_run(run.store.url, 2, texts={0: whole[:cut], 1: whole[cut:]}, documents={0: whole}, starts={1: cut})
    with opened(run) as deck:
        assert [deck[row].fenced for row in (0, 1)] == [False, True]
        after = deck.neighbors(0)[1]
        assert after is not None
        assert after.fenced


def test_neighbours_of_a_run_built_anew_are_no_others(run: Run) -> None:
    with opened(review_run(run.store.url, 6)) as deck:
        review_run(run.store.url, 6, texts={2: "another text"})
        assert deck[2].text == "Rotating keys, part 2: open Settings."
        with pytest.raises(ArtifactError, match="was rebuilt"):
            deck.neighbors(3)


def test_a_sample_of_pairs_that_are_gone_is_refused(run: Run) -> None:
    review_run(run.store.url, 4)
    sample(run, [(TENANT, "q0", "doc9#9")], [0])
    with pytest.raises(ArtifactError, match=r"has chunk_id 'doc9#9'"), opened(run):
        pass
    sample(run, [(TENANT, "q9", "doc0#0")], [0])
    with pytest.raises(ArtifactError, match=r"has query_id 'q9'"), opened(run):
        pass


def test_a_sample_without_pairs_is_refused(run: Run) -> None:
    review_run(run.store.url, 4)
    put_sample(run, TABLES["review_sample"].empty())
    with pytest.raises(ArtifactError, match="is empty"), opened(run):
        pass


def test_a_run_below_a_folder_whose_name_is_a_pattern(tmp_path: Path) -> None:
    with opened(review_run(str(tmp_path / "a[b]*"), 4)) as deck:
        assert deck.neighbors(0)[1] is not None


def test_pairs_have_names_of_their_own(run: Run) -> None:
    with opened(review_run(run.store.url, 4)) as deck:
        pair = deck[0]
        assert replace(pair, tenant="x", query_id="q").name != replace(pair, tenant="", query_id="xq").name
