"""Where phone numbers stand in a text; the whole mask is tested in `test_personal_data`."""

import pytest

from darklode.pipeline.base.phone_numbers import phone_spans


@pytest.mark.parametrize("number", ["+33 6 12 34 56 78", "06 12 34 56 78", "(415) 555-2671", "+49 30 901820"])
def test_a_number_is_found_whole(number: str) -> None:
    text = f"call {number} today"
    assert [text[start:end] for start, end in phone_spans(text)] == [number]


@pytest.mark.parametrize("text", ["error 404 on port 8080", "version 1.2.3", "due 02/2023", "order of 12 items"])
def test_other_numbers_are_left(text: str) -> None:
    assert not list(phone_spans(text))
