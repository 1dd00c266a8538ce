"""Personal data and secrets, each kind masked by its name."""

import subprocess
import sys
from collections.abc import Callable
from unittest.mock import Mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base import personal_data
from darklode.pipeline.base.personal_data import mask, mask_text
from helpers.leaks import NEGATIVE, POSITIVE


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("mail me at jo.doe+x@mail.example.com please", "mail me at [email] please"),
        ("key pk_test_51HxxABCDEFGHIJ fails", "key [token] fails"),
        ("blocked ip 203.0.113.77 again", "blocked ip [ip] again"),
        ("card 4242 4242 4242 4242 declined", "card [card] declined"),
        ("call +49 (0)30 1234 567 or 555-123-4567", "call [phone] or [phone]"),
        ("error 404 on version 2.10.1 since 2026-03-01", "error 404 on version 2.10.1 since 2026-03-01"),
    ],
)
def test_personal_data_is_masked(text: str, masked: str) -> None:
    assert mask(pa.chunked_array([[text]])).to_pylist() == [masked]


def test_leaks_do_not_pass() -> None:
    masked = mask(pa.array([text for text, _ in POSITIVE])).to_pylist()
    missed = [(text, got) for (text, secret), got in zip(POSITIVE, masked, strict=True) if secret in got]
    assert len(POSITIVE) >= 300
    assert len(missed) <= 0.02 * len(POSITIVE), missed


def test_what_only_looks_like_personal_data_stays() -> None:
    masked = mask(pa.array(NEGATIVE)).to_pylist()
    assert len(NEGATIVE) >= 300
    changed = [(text, got) for text, got in zip(NEGATIVE, masked, strict=True) if text != got]
    assert len(changed) <= 0.01 * sum(len(text.split()) for text in NEGATIVE), changed
    assert len(changed) <= 0.01 * len(NEGATIVE), changed


def test_no_word_around_personal_data_is_masked() -> None:
    masked = mask(pa.array([text for text, _ in POSITIVE])).to_pylist()
    for (text, secret), got in zip(POSITIVE, masked, strict=True):
        before, _, after = text.partition(secret)
        assert got.startswith(before.rsplit(maxsplit=1)[0] if before.split()[1:] else "")
        assert got.endswith(after.split(maxsplit=1)[-1] if after.split()[1:] else "")


HARD = [
    "mail max (AT) firma (DOT) de",
    "john[AT]example[DOT]com",
    "john{At}example.com",
    "private key: abc123def",
    "basic: abc~def~ghi~jkl~m1",
    "ping ::abc1",
    "eyJa.b",
    "-----BEGIN PRIVATE KEY----- abc",
    "用ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "bearer abcdefghijklmno\u017f1",
    "call \u0664\u0669 \u0661\u0662\u0663\u0664\u0665\u0666\u0667",
]


@pytest.mark.parametrize("change", [str, str.upper, str.lower, str.swapcase], ids=lambda change: change.__name__)
def test_no_text_with_personal_data_is_passed_by(change: Callable[[str], str]) -> None:
    texts = [change(text) for text in [*(text for text, _ in POSITIVE), *NEGATIVE, *HARD]]
    assert mask(pa.array(texts)).to_pylist() == [mask_text(text) for text in texts]


@pytest.mark.parametrize("text", HARD[:4])
def test_spelt_out_addresses_and_private_keys_are_masked_in_any_case(text: str) -> None:
    assert mask(pa.array([text])).to_pylist() != [text]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(parts=st.lists(st.sampled_from([text for text, _ in POSITIVE] + HARD), min_size=1, max_size=3), data=st.data())
def test_no_part_of_such_a_text_is_passed_by(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    start = data.draw(st.integers(0, len(text)))
    piece = text[start : data.draw(st.integers(start, len(text)))]
    assert mask(pa.array([piece])).to_pylist() == [mask_text(piece)]


def test_each_distinct_text_is_masked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = Mock(return_value="[email]")
    monkeypatch.setattr(personal_data, "mask_text", finder)
    column = pa.chunked_array([["a@b.io", "c", "a@b.io"], ["d@b.io", "a@b.io"]])
    assert mask(column).to_pylist() == ["[email]", "c", "[email]", "[email]", "[email]"]
    assert [call.args for call in finder.call_args_list] == [("a@b.io",), ("d@b.io",)]


def test_nulls_and_chunks_stay() -> None:
    column = pa.chunked_array([[None, "a"], [], ["to x@y.io", None]])
    assert mask(column).to_pylist() == [None, "a", "to [email]", None]
    assert mask(pa.array([], pa.string())).to_pylist() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["a.", "1 ", "1", "a@", "1:", "-", "a1B2", "://a:", "password=", "+4 ", "用", '"', "eyJ-", "-sk-"]
)
def test_a_long_text_is_masked_in_time_that_grows_with_its_length(piece: str) -> None:
    """200,000 characters of one sign take minutes where a pattern goes back over it."""
    code = (
        "import resource, sys; from darklode.pipeline.base.personal_data import mask_text; mask_text('x@y.io');"
        "resource.setrlimit(resource.RLIMIT_CPU, (40, 40)); mask_text(sys.stdin.read())"
    )
    text = piece * (200_000 // len(piece))
    done = subprocess.run([sys.executable, "-c", code], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-300:]
