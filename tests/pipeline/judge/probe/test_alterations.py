from hashlib import sha256

import pytest

from darklode.pipeline.judge.probe.alterations import (
    ALTERATIONS,
    FOREIGN_SENTENCES,
    INSTRUCTIONS,
    KEPT_WORDS,
    ProbeText,
)
from darklode.pipeline.judge.probe.kinds import PROBE_KINDS

PAIR = ProbeText("how to reset a password?", "Accounts", None, "Open the settings and choose Reset. Then sign in.")


def altered(kind: str) -> list[ProbeText]:
    return [alteration.apply(PAIR) for alteration in ALTERATIONS[kind]]


def test_every_kind_has_rules_and_every_rule_a_kind() -> None:
    assert ALTERATIONS.keys() == PROBE_KINDS.keys()
    assert all(len({rule.variant for rule in rules}) == len(rules) > 0 for rules in ALTERATIONS.values())


def test_stuffed_words_are_those_of_the_query_and_the_chunk_keeps_its_own() -> None:
    (pair,) = altered("stuffed query")
    assert pair.text.count("password a reset to how") == 3
    assert [word for word in PAIR.text.split() if word not in pair.text.split()] == []
    assert PAIR.query not in pair.text
    assert pair.query == PAIR.query


def test_instructions_are_planted_on_both_sides() -> None:
    texts = [pair.text for pair in altered("planted instruction")]
    assert {text.split("\n")[0] for text in texts} >= set(INSTRUCTIONS)
    assert {text.split("\n")[-1] for text in texts} >= set(INSTRUCTIONS)
    assert all(PAIR.text in text for text in texts)


def test_cut_chunks_keep_title_and_heading() -> None:
    (truncated,), (empty,) = altered("truncated chunk"), altered("empty chunk")
    assert (truncated.text, len(truncated.text.split())) == ("Open the settings", KEPT_WORDS)
    assert (empty.text, empty.title) == ("", "Accounts")


def test_rewordings_keep_the_querys_words() -> None:
    assert [pair.query for pair in altered("reworded query")] == [
        "a password? how to reset",
        "how to reset a password",
        "I would like to know: how to reset a password?",
    ]
    statement = ALTERATIONS["reworded query"][1].apply(ProbeText("reset password", None, None, "x"))
    assert statement.query == "reset password?"
    one_word = ALTERATIONS["reworded query"][0].apply(ProbeText("reset", None, None, "x"))
    assert one_word.query == "reset"


def test_another_language_replaces_the_chunk_or_the_query() -> None:
    pairs = altered("other language")
    assert {pair.text for pair in pairs if pair.query == PAIR.query} == set(FOREIGN_SENTENCES.values())
    assert {pair.query for pair in pairs if pair.text == PAIR.text} == set(FOREIGN_SENTENCES.values())


@pytest.mark.parametrize("kind", ["repeated", "other tenant", "order of examples"])
def test_some_kinds_change_no_text(kind: str) -> None:
    assert altered(kind) == [PAIR]


def test_hashes_are_those_of_the_chunk_stage() -> None:
    assert PAIR.chunk_hash == sha256(f"Accounts\0\0{PAIR.text}".encode()).hexdigest()[:32]
    assert PAIR.query_hash == sha256(PAIR.query.encode()).hexdigest()[:32]
