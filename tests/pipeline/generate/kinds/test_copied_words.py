"""Words of the text, as many as real queries have."""

import pyarrow as pa

from darklode.pipeline.generate.kinds.copied_words import USUAL, CopiedWordsWriter
from darklode.pipeline.generate.port import ASKED

TEXT = "one two three four five six seven eight one two"


def written(examples: list[str], *draws: int) -> list[list[str]]:
    row = {"tenant": "t", "chunk_id": "c", "title": None, "heading": None, "text": TEXT}
    texts = pa.Table.from_pylist([row | {"draw": draw} for draw in draws], schema=ASKED)
    return [text.split() for text in CopiedWordsWriter().write(texts, examples, lambda _done: None)["text"].to_pylist()]


def test_they_are_different_words_in_the_texts_order_and_as_many_as_a_real_query_has() -> None:
    found = written(["a b", "a b c"], *range(20))
    assert {len(words) for words in found} == {2, 3}
    order = TEXT.split()
    assert all(words == sorted(set(words), key=order.index) for words in found)
    assert len({tuple(words) for words in found}) > 10
    assert found == written(["a b", "a b c"], *range(20))
    assert {len(words) for words in written([], 1, 2)} == {USUAL}
