"""Personal data and secrets, each kind masked by its name."""

import pyarrow as pa
import pytest

from darklode.pipeline.base.personal_data import mask


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
