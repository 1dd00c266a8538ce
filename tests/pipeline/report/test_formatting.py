"""Numbers and texts as a reader sees them."""

from datetime import date

import pytest

from darklode.pipeline.report.formatting import (
    MAX_ID,
    brief,
    clean,
    duration,
    first,
    number,
    share,
    short_id,
    strip_bidi_controls,
)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (1234567, "1,234,567"),
        (0.5, "0.5"),
        (2.0, "2"),
        (0.1239, "0.124"),
        (123.456, "123.5"),
        (12345.6, "12,346"),
        (0.00001, "0"),
        (float("nan"), "nan"),
        (1e20, "1e+20"),
        (date(2026, 3, 1), "2026-03-01"),
        ([1, None, "a\x00b"], "1 · – · a�b"),
    ],
)
def test_a_value_as_it_stands_in_a_table(value: object, said: str) -> None:
    assert number(value) == said


@pytest.mark.parametrize(
    ("value", "most", "said"),
    [(20_000, 50_000, "20k"), (5_000, 9_999, "5,000"), (1.5e6, 2e7, "1.5M"), (3e9, 1e10, "3G"), (0, 1e9, "0")],
)
def test_the_ticks_of_an_axis_have_one_unit(value: float, most: float, said: str) -> None:
    assert brief(value, most) == said


@pytest.mark.parametrize(("part", "said"), [(None, "unknown"), (0.0, "0 %"), (0.1234, "12.3 %"), (1.0, "100.0 %")])
def test_an_unknown_share_is_not_nothing(part: float | None, said: str) -> None:
    assert share(part) == said


def test_decimals_of_a_share() -> None:
    assert share(0.12345, 2) == "12.35 %"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.0 s"),
        (0.05, "50 ms"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (3599.6, "1 h 0 min"),
        (3_600 * 1000 + 60, "1,000 h 1 min"),
    ],
)
def test_how_long_it_took(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_what_no_page_can_hold_is_replaced_and_lines_stay() -> None:
    assert clean("a\tb\nc\x00\x1b\ud800\ufffe é☃") == "a\tb\nc���� é☃"


def test_marks_that_turn_the_direction_go() -> None:
    assert strip_bidi_controls("file \u202egnp.exe\u2069 é") == "file gnp.exe é"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("short  text\n", "short text"),
        ("one two three", "one two …"),
        ("Donaudampfschifffahrt", "Donaudampf …"),
        ("ab Donaudampfschifffahrt", "ab Donauda …"),
    ],
)
def test_the_beginning_ends_with_a_word_where_one_is_near(text: str, said: str) -> None:
    assert first(text, 10) == said


@pytest.mark.parametrize(
    ("judge_id", "short"),
    [
        ("embedded-3:301863036f78f2c7", "embedded-3:301863"),
        ("llm-1", "llm-1"),
        ("llm-3:owner/model@abc:relevance-2:json:0123456789abcdef", "llm-3:model:relevance-2:json:012345"),
        ("encoder-1:kind:model@files-ef3d:dtype=float32:b38d7896040d926a:0.36", "encoder-1:kind:model:b38d78:0.36"),
    ],
)
def test_a_short_id_keeps_kind_model_and_the_beginnings_of_digests(judge_id: str, short: str) -> None:
    assert short_id(judge_id) == short


def test_a_short_id_has_a_maximum_length() -> None:
    assert len(short_id(f"panel-1:[{'x' * 1000}]")) <= MAX_ID + 2
