"""A document to read: where its chunk stands, and what is left out of a long one."""

import pytest

from darklode.pipeline.base.document_view import MAX_CONTEXT_CHARACTERS, DocumentExcerpt


def row(text: str, start: int | None, end: int | None) -> dict[str, object]:
    return {"doc_id": "d", "title": None, "url": None, "source": "f", "text": text, "start": start, "end": end}


@pytest.mark.parametrize(
    ("start", "end", "parts"),
    [(1, 3, ("a", "bc", "def")), (0, 6, ("", "abcdef", "")), (None, None, ("", "", "abcdef"))],
)
def test_a_text_is_cut_around_its_chunk(start: int | None, end: int | None, parts: tuple[str, ...]) -> None:
    reading = DocumentExcerpt.from_row(row("abcdef", start, end))
    assert (reading.before, reading.chunk, reading.after, reading.cut) == (*parts, (0, 0))


def test_of_a_long_text_what_stands_around_the_chunk_is_shown() -> None:
    text = "x" * (3 * MAX_CONTEXT_CHARACTERS)
    reading = DocumentExcerpt.from_row(row(text, MAX_CONTEXT_CHARACTERS + 7, MAX_CONTEXT_CHARACTERS + 9))
    assert (len(reading.before), len(reading.after)) == (MAX_CONTEXT_CHARACTERS, MAX_CONTEXT_CHARACTERS)
    assert sum(map(len, (reading.before, reading.chunk, reading.after))) + sum(reading.cut) == len(text)
