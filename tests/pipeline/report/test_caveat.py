"""Caveats as plain text, and those that apply."""

from darklode.pipeline.report.caveat import Caveat, with_text


def test_a_caveat_without_a_text_does_not_apply() -> None:
    assert with_text([Caveat("a"), Caveat("b", "text")]) == [Caveat("b", "text")]


def test_plain_text_has_the_headline_and_the_text() -> None:
    assert Caveat("Few queries", "Only 3.").sentences == "Few queries: Only 3."
    assert Caveat("Few queries").sentences == "Few queries"
