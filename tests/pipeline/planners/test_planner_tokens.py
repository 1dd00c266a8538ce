"""Which words of a text can be important."""

import pytest

from pipeline.planners.tokens import Tokens


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("how do I reset the passwords?", ["reset", "password"]),
        ("error 429 after 30 days", ["error", "429", "day"]),
        ("upgrade from v4.0 to 4.2.1.", ["upgrad", "4.0", "4.2.1"]),
        ("PEL-1402 in e1042", ["pel", "1402", "e1042"]),
        ("料金を", ["料金", "金を"]),
        ("the 2", []),
    ],
)
def test_words_that_count(text: str, terms: list[str]) -> None:
    assert Tokens().of(text) == terms


def test_every_word_counts_where_asked() -> None:
    assert Tokens(every_word=True).of("the 2 keys") == ["the", "2", "key"]
