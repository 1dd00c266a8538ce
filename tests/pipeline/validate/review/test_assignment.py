from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.validate.review.assignment import LOCK_SECONDS, ReviewSession, reviewer_name
from darklode.pipeline.validate.review.journal import AnswerJournal, current_answers
from darklode.pipeline.validate.review.pairs import ReviewPairs
from helpers.review_run import opened, review_run, turns_of

PAIRS = 9  # of which 0, 3 and 6 are shared


@pytest.fixture
def deck(run: Run) -> Iterator[ReviewPairs]:
    with opened(review_run(run.store.url, PAIRS)) as deck:
        yield deck


@pytest.fixture
def turns(run: Run, deck: ReviewPairs) -> ReviewSession:
    return turns_of(run, deck)


def say(
    turns: ReviewSession, deck: ReviewPairs, reviewer: str, relevance: int | None = 1, row: int | None = None
) -> int:
    """Answer the reviewer's next pair, or the one at a row; returns its row."""
    at = turns.next_pair(reviewer) if row is None else row
    assert at is not None
    turns.answer(reviewer, deck[at], relevance, None, shown=False)
    return at


def undo(turns: ReviewSession, reviewer: str) -> bool:
    last = turns.last_answer(reviewer)
    return last is not None and turns.undo(reviewer, last.pair)


def kept(run: Run) -> list[tuple[object, ...]]:
    rows = current_answers(AnswerJournal(run.store).read()).to_pylist()
    return [(row["chunk_id"], row["reviewer"], row["relevance"]) for row in rows]


def test_one_reviewer_gets_every_pair_in_order(turns: ReviewSession, deck: ReviewPairs) -> None:
    assert [say(turns, deck, "Ann") for _ in range(PAIRS)] == list(range(PAIRS))
    assert turns.next_pair("Ann") is None
    progress = turns.progress("Ann")
    assert (progress.answered, progress.n_remaining, progress.labelled, progress.pairs) == (PAIRS, 0, PAIRS, PAIRS)


def test_a_pair_is_shown_until_it_is_answered(turns: ReviewSession) -> None:
    assert [turns.next_pair("Ann"), turns.next_pair("Ann")] == [0, 0]


def test_shared_pairs_go_to_everybody_and_others_to_one(turns: ReviewSession, deck: ReviewPairs) -> None:
    assert (say(turns, deck, "Ann"), say(turns, deck, "Ben")) == (0, 0)
    assert (turns.next_pair("Ann"), turns.next_pair("Ben"), turns.next_pair("Cem")) == (1, 2, 0)
    assert [say(turns, deck, "Ann") for _ in range(4)] == [1, 3, 4, 5]
    assert [say(turns, deck, "Ben") for _ in range(5)] == [2, 3, 6, 7, 8]
    assert say(turns, deck, "Ann") == 6
    assert turns.next_pair("Ann") is None
    assert turns.progress("Ann").labelled == PAIRS
    assert [say(turns, deck, "Cem") for _ in range(3)] == [0, 3, 6]


def test_labels_are_those_of_the_majority_without_skips_ties_and_retracted_answers(
    turns: ReviewSession, deck: ReviewPairs
) -> None:
    names = list(deck.rows)
    for reviewer, relevance in (("Ann", 1), ("Ben", 3), ("Cem", 0)):
        say(turns, deck, reviewer, relevance, row=0)
    say(turns, deck, "Ann", 0, row=1)
    say(turns, deck, "Ann", 1, row=3), say(turns, deck, "Ben", 0, row=3)
    say(turns, deck, "Ann", None, row=6)
    say(turns, deck, "Ben", 1, row=2), undo(turns, "Ben")
    assert turns.labels() == {names[0]: 1.0, names[1]: 0.0}


def test_a_pair_on_a_screen_that_was_left_goes_to_another(run: Run, deck: ReviewPairs) -> None:
    now = [0.0]
    turns = ReviewSession(deck.rows, deck.shared, AnswerJournal(run.store), clock=lambda: now[0])
    say(turns, deck, "Ann"), say(turns, deck, "Ben")
    assert (turns.next_pair("Ann"), turns.next_pair("Ben")) == (1, 2)
    assert (turns.progress("Ben").n_remaining, turns.progress("Ben").elsewhere) == (PAIRS - 2, 1)
    now[0] = LOCK_SECONDS + 1
    assert turns.next_pair("Ben") == 1
    assert turns.next_pair("Ann") == 2


def test_the_last_pairs_may_be_on_other_screens(turns: ReviewSession, deck: ReviewPairs) -> None:
    for row in range(PAIRS - 1):
        say(turns, deck, "Ann", row=row)
    assert turns.next_pair("Ann") == PAIRS - 1
    for row in (0, 3, 6):
        say(turns, deck, "Ben", row=row)
    assert turns.next_pair("Ben") is None
    assert turns.progress("Ben").elsewhere == 1


def test_a_skipped_pair_does_not_come_back_but_goes_to_another(turns: ReviewSession, deck: ReviewPairs) -> None:
    say(turns, deck, "Ann")
    assert say(turns, deck, "Ann", None) == 1
    assert turns.next_pair("Ann") == 2
    assert (turns.progress("Ann").skipped, turns.n_labelled) == (1, 1)
    say(turns, deck, "Ben")
    assert turns.next_pair("Ben") == 1


def test_undo_shows_the_pair_again_with_what_was_said(turns: ReviewSession, deck: ReviewPairs, run: Run) -> None:
    turns.answer("Ann", deck[0], 0, "too vague", shown=False)
    say(turns, deck, "Ann")
    assert turns.next_pair("Ann") == 2
    assert undo(turns, "Ann")
    assert turns.next_pair("Ann") == 1
    assert undo(turns, "Ann")
    assert turns.next_pair("Ann") == 0
    back = turns.retracted_answer("Ann", 0)
    assert back is not None
    assert (back.relevance, back.rationale) == (0, "too vague")
    assert kept(run) == []
    assert not undo(turns, "Ann")
    assert [say(turns, deck, "Ann", 0) for _ in range(3)] == [0, 1, 2]
    assert kept(run) == [("doc0#0", "Ann", 0), ("doc0#1", "Ann", 0), ("doc1#2", "Ann", 0)]


def test_undo_of_an_answer_that_is_no_longer_the_last_does_nothing(
    turns: ReviewSession, deck: ReviewPairs, run: Run
) -> None:
    say(turns, deck, "Ann"), say(turns, deck, "Ann")
    assert turns.undo("Ann", deck[1].name)
    assert not turns.undo("Ann", deck[1].name)
    assert len(kept(run)) == 1


def test_everything_goes_on_after_a_restart(turns: ReviewSession, deck: ReviewPairs, run: Run) -> None:
    for relevance in (1, None, 0, 1, 1):
        say(turns, deck, "Ann", relevance)
    say(turns, deck, "Ben")
    undo(turns, "Ann"), undo(turns, "Ann")
    again = turns_of(run, deck)
    assert again.reviewers() == turns.reviewers()
    assert [again.next_pair("Ann"), turns.next_pair("Ann")] == [3, 3]
    assert undo(again, "Ann")
    assert again.next_pair("Ann") == 2
    assert [say(again, deck, "Ann") for _ in range(4)] == [2, 3, 4, 5]


def test_the_same_answer_is_kept_once_and_another_is_a_change(
    turns: ReviewSession, deck: ReviewPairs, run: Run
) -> None:
    assert turns.answer("Ann", deck[0], 1, None, shown=False)
    assert not turns.answer("Ann", deck[0], 1, None, shown=False)
    assert turns.answer("Ann", deck[0], 1, "because", shown=False)
    assert turns.answer("Ann", deck[0], 0, None, shown=False)
    assert len(AnswerJournal(run.store).read()) == 3
    assert kept(run) == [("doc0#0", "Ann", 0)]
    assert (turns.n_labelled, turns.progress("Ann").answered) == (1, 1)


def test_answers_survive_a_sample_that_is_drawn_anew(turns: ReviewSession, deck: ReviewPairs, run: Run) -> None:
    say(turns, deck, "Ann"), say(turns, deck, "Ann")
    with opened(review_run(run.store.url, 1)) as smaller:
        again = turns_of(run, smaller)
        assert again.next_pair("Ann") is None
        assert again.progress("Ann").answered == 1
        assert undo(again, "Ann")
        assert not undo(again, "Ann")


def test_a_name_is_one_person_however_it_is_written(turns: ReviewSession, deck: ReviewPairs) -> None:
    say(turns, deck, "Ann")
    assert (turns.canonical_name("ann"), turns.canonical_name("Ann"), turns.canonical_name("Anna")) == (
        "Ann",
        "Ann",
        "Anna",
    )


def test_reviewers_in_threads_lose_nothing_and_label_no_unshared_pair_twice(run: Run) -> None:
    with opened(review_run(run.store.url, 150)) as deck:
        turns = turns_of(run, deck)

        def label(reviewer: str) -> list[int]:
            rows: list[int] = []
            while (row := turns.next_pair(reviewer)) is not None:
                turns.answer(reviewer, deck[row], row % 2, None, shown=False)
                rows.append(row)
            return rows

        with ThreadPoolExecutor(6) as pool:
            rows = list(pool.map(label, [f"r{n}" for n in range(6)]))
        counts = Counter(row for one in rows for row in one)
        assert counts == {row: 6 if deck.shared[row] else 1 for row in range(150)}
        assert len(kept(run)) == counts.total()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("  Ann \t B. ", "Ann B."),
        ("Bö/?&<b>", "Bö/?&<b>"),
        ("می‌خواهم", "می‌خواهم"),
        ("x" * 60, "x" * 60),
        ("x" * 61, None),
        ("   ", None),
        ("\u200d", None),
        ("a\x00b", None),
        ("a\u202eb", None),
    ],
)
def test_names(given: str, name: str | None) -> None:
    assert reviewer_name(given) == name
