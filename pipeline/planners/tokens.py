"""Words that can be important: what queries and documents are compared by."""

import re
from collections.abc import Iterator

from pipeline.terms import Analyzer

_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)(?![\w.]*\d)", re.I)
_SHORT_NUMBER = re.compile(r"\d{1,2}")


class Tokens:
    """Texts to terms of one word.

    Stop words are left out, and so are numbers of one or two digits: "2 days" is about days. Longer ones (error 429)
    and codes (pel-1402: pel, 1402) are terms; a version number is a single one, without its v. Words are stemmed
    (English), so that plural and singular meet; scripts without spaces become pairs of characters.

    Args:
        every_word: stop words and short numbers are terms, too.
    """

    def __init__(self, *, every_word: bool = False) -> None:
        self._analyzer = Analyzer(stop_words=not every_word)
        self._every_word = every_word

    def of(self, text: str) -> list[str]:
        """The terms, in order."""
        return [term for piece in self._pieces(text) for term in piece]

    def _pieces(self, text: str) -> Iterator[list[str]]:
        end = 0
        for match in _VERSION.finditer(text) if "." in text else ():
            yield self._words(text[end : match.start()])
            yield [match[1]]
            end = match.end()
        yield self._words(text[end:])

    def _words(self, text: str) -> list[str]:
        found = self._analyzer.tokenize(text)
        return found if self._every_word else [word for word in found if not _SHORT_NUMBER.fullmatch(word)]
