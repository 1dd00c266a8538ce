"""Personal data and secrets, each kind masked by its name."""

import subprocess
import sys

import pyarrow as pa
import pytest

from darklode.pipeline.base.personal_data import mask
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


def test_nulls_and_chunks_stay() -> None:
    column = pa.chunked_array([[None, "a"], [], ["to x@y.io", None]])
    assert mask(column).to_pylist() == [None, "a", "to [email]", None]
    assert mask(pa.array([], pa.string())).to_pylist() == []


@pytest.mark.parametrize("piece", ["a.", "1 ", "1", "a@", "1:", "-", "a1B2", "://a:", "password=", "+4 ", "用", '"'])
def test_a_long_text_is_masked_in_time_that_grows_with_its_length(piece: str) -> None:
    """A quarter of a megabyte of one sign takes minutes where a pattern goes back over it."""
    code = (
        "import resource, sys; from darklode.pipeline.base.personal_data import mask_text; mask_text('x@y.io');"
        "resource.setrlimit(resource.RLIMIT_CPU, (40, 40)); mask_text(sys.stdin.read())"
    )
    text = piece * (50_000 // len(piece))
    done = subprocess.run([sys.executable, "-c", code], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-300:]
