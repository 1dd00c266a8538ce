from dataclasses import replace

from darklode.pipeline.judge.teach.examples import (
    HELD_OUT,
    MAX_CHUNK_CHARACTERS,
    TEACHING,
    TaughtPair,
    label_name,
    part_of,
    rubric_lines,
    select_examples,
    without,
)

PAIR = TaughtPair("a", "q1", "c1", "reset password", None, None, "Open the settings.", 0, True, 0.9)


def pair(query: str, relevance: int, relevant: bool | None, **more: object) -> TaughtPair:
    return replace(PAIR, query_id=query, query=query, relevance=relevance, relevant=relevant, **more)  # type: ignore[arg-type]


def test_examples_are_errors_of_both_kinds_each_query_once() -> None:
    pairs = [
        pair("right", 1, True),
        pair("unread", 1, None),
        pair("too general", 0, True, reason="too general"),
        pair("sure", 0, True, probability=0.99),
        pair("missed", 2, False),
        pair("long", 0, True, reason="long", chunk="x" * (MAX_CHUNK_CHARACTERS + 1)),
        pair("empty", 0, True, reason="empty", chunk=""),
        pair("Missed", 0, True, reason="the same query in other letters"),
    ]
    chosen = [(one.query, one.relevance) for one in select_examples(pairs, 3)]
    assert chosen == [("Missed", 0), ("too general", 0), ("sure", 0)]
    without_twin = pairs[:-1]
    assert [one.query for one in select_examples(without_twin, 3)] == ["too general", "missed", "sure"]
    assert select_examples(reversed(without_twin), 3) == select_examples(without_twin, 3)
    assert select_examples(pairs[:2], 3) == []


def test_a_querys_pairs_are_in_one_half() -> None:
    names = [f"query {number}" for number in range(400)]
    halves = [part_of(pair(name, 0, True), 1) for name in names]
    assert 150 < halves.count(TEACHING) < 250
    assert halves.count(TEACHING) + halves.count(HELD_OUT) == 400
    assert [part_of(pair(name.upper() + " ", 1, False), 1) for name in names] == halves
    assert [part_of(pair(name, 0, True), 2) for name in names] != halves


def test_the_rubric_has_reasons_of_several_errors() -> None:
    pairs = [
        *(pair(f"a{number}", 0, True, reason="too {general}") for number in range(3)),
        *(pair(f"b{number}", 1, False, reason="same\nthing") for number in range(2)),
        pair("once", 0, True, reason="only once"),
        *(pair(f"d{number}", 1, True, reason="no error") for number in range(5)),
    ]
    assert rubric_lines(pairs) == [
        "- Not relevant, although it was labelled otherwise: too (general)",
        "- Relevant, although it was labelled otherwise: same thing",
    ]


def test_labels_of_people_in_the_words_of_a_prompt() -> None:
    binary, graded = {"yes": 1, "no": 0}, {"3": 3, "2": 2, "1": 1, "0": 0}
    assert [label_name(binary, 1, pair("q", grade, True)) for grade in (0, 1, 3)] == ["no", "yes", "yes"]
    assert [label_name(graded, 2, pair("q", grade, True)) for grade in (0, 1, 2, 3)] == ["0", "2", "2", "3"]


def test_queries_of_examples_choose_nothing() -> None:
    pairs = [pair("one", 0, True), pair("One ", 1, False), pair("two", 1, False)]
    assert [one.query for one in without(pairs, pairs[:1])] == ["two"]
