"""A sentence of the text asks for it."""

import pyarrow as pa

from darklode.pipeline.generate.kinds.ict import InverseClozeWriter
from darklode.pipeline.generate.port import INPUT_SCHEMA

TEXT = "Short one. The certificate is made anew each night. Nobody has to do anything for it. Done."


def written(*draws: int, text: str = TEXT) -> list[str | None]:
    row = {"tenant": "t", "chunk_id": "c", "title": None, "heading": None, "text": text}
    texts = pa.Table.from_pylist([row | {"draw": draw} for draw in draws], schema=INPUT_SCHEMA)
    found: list[str | None] = InverseClozeWriter().write(texts, [], lambda _done: None)["text"].to_pylist()
    return found


def test_it_is_a_sentence_that_is_long_enough() -> None:
    assert written(0, 2**64 - 1) == ["The certificate is made anew each night.", "Nobody has to do anything for it."]


def test_a_text_without_one_asks_as_a_whole_and_an_empty_one_not_at_all() -> None:
    assert written(5, text=" Too short. ") == ["Too short."]
    assert written(5, text="  ") == [None]
