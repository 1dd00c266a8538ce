"""A text as a page shows it: its lines, code and tables apart from prose, with the words marked that matter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Self

from darklode.pipeline.base.terms import Analyzer, tokens, words

FENCES = r"len(regexp_extract_all({text}, '(?m)^[ \t]*(?:```|~~~)'))"
"""SQL: lines of a text that begin or end fenced code, as `Marker.blocks` reads it; after an odd number follows code."""

BEGINS_FENCED = f"""coalesce({FENCES.format(text='left(d.text, c."start")')} % 2 = 1, false)"""
"""SQL: whether chunk c of document d begins within fenced code; so does none of a document that is not there."""

_FENCES = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s")


@dataclass(frozen=True)
class Piece:
    """Some characters of a text, and whether they are to be marked."""

    text: str
    marked: bool


@dataclass(frozen=True)
class TextBlock:
    """Lines of a text; `fixed` ones are code or a table, whose characters stand below each other."""

    fixed: bool
    lines: list[list[Piece]]


class Marker:
    """Marks words of a text.

    Args:
        matches: whether a word is to be marked, asked once for each.
    """

    def __init__(self, matches: Callable[[str], bool]) -> None:
        self._matches = cache(matches)

    @classmethod
    def of_terms(cls, analyzer: Analyzer, query: str) -> Self:
        """Marks the terms of a query, stemmed as the run's BM25 stems them."""
        terms = frozenset(analyzer.tokenize(query))
        return cls(lambda word: not terms.isdisjoint(analyzer.tokenize(word)))

    @classmethod
    def of_parts(cls, parts: Sequence[str]) -> Self:
        """Marks the words that hold one of these parts of words, whatever their case and accents."""
        wanted = [one for part in parts for one in words(folded(part))]
        return cls(lambda word: any(part in folded(word) for part in wanted))

    def pieces(self, text: str) -> list[Piece]:
        """The whole text in order, cut where marks begin and end."""
        found, at = [], 0
        for start, end in self._spans(text):
            found += [Piece(text[at:start], False)] if start > at else []
            found.append(Piece(text[start:end], True))
            at = end
        return found + ([Piece(text[at:], False)] if at < len(text) else [])

    def blocks(self, text: str, *, fenced: bool = False) -> list[TextBlock]:
        """The text's lines: fenced or indented code and Markdown's tables apart from prose.

        Args:
            text: of a document, or a piece cut out of one.
            fenced: it begins within fenced code.
        """
        blocks: list[TextBlock] = []
        for fixed, line in _lines(text, fenced):
            if not blocks or blocks[-1].fixed != fixed:
                blocks.append(TextBlock(fixed, []))
            blocks[-1].lines.append(self.pieces(line))
        return blocks

    def cut(self, parts: Sequence[str]) -> list[list[TextBlock]]:
        """The blocks of each piece of a text that was cut, none where a piece is empty."""
        before = accumulate((len(_FENCES.findall(part)) for part in parts), initial=0)
        ends = [part.strip("\n") for part in parts]
        return [
            self.blocks(end, fenced=fences % 2 == 1) if end else [] for end, fences in zip(ends, before, strict=False)
        ]

    def collapsed(self, text: str, characters: int, *, fenced: bool = False) -> tuple[list[TextBlock], list[TextBlock]]:
        """What is shown of a text at once, as for `clipped`, and all of it, none where that is no more."""
        whole = self.blocks(text, fenced=fenced) if len(text) > characters else []
        return self.clipped(text, characters, fenced=fenced), whole

    def clipped(self, text: str, characters: int, *, fenced: bool = False) -> list[TextBlock]:
        """About so many characters of the text, in its own lines, from the line of the first mark on.

        Args:
            text: as for `blocks`, as is `fenced`.
            characters: a text that has no more is shown whole.
            fenced: see there.
        """
        if len(text) <= characters:
            return self.blocks(text, fenced=fenced)
        mark = next(self._spans(text), (0, 0))[0]
        begin = text.rfind("\n", 0, min(mark, len(text) - characters) + 1) + 1
        if mark - begin > characters // 2:  # far into a long line
            begin = text.rfind(" ", begin, mark - characters // 4) + 1 or begin
        end = begin + characters
        if end < len(text):
            end = next((at for at in (text.rfind(sign, begin + characters // 2, end) for sign in "\n ") if at > 0), end)
        fences = len(_FENCES.findall(text[:begin]))
        blocks = self.blocks(text[begin:end].rstrip(), fenced=fenced ^ (fences % 2 == 1))
        if begin:
            blocks[0].lines[0].insert(0, Piece("… ", False))
        if end < len(text):
            blocks[-1].lines[-1].append(Piece(" …", False))
        return blocks

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where they stand; overlapping pairs of characters are joined."""
        begun: tuple[int, int] | None = None
        for start, end in tokens(text):
            if not self._matches(text[start:end]):
                continue
            if begun and start < begun[1]:
                begun = begun[0], end
                continue
            if begun:
                yield begun
            begun = start, end
        if begun:
            yield begun


def folded(text: str) -> str:
    """A text without case and accents."""
    parts = unicodedata.normalize("NFKD", text.lower())
    return "".join(char for char in parts if not unicodedata.combining(char))


def _lines(text: str, fenced: bool) -> Iterator[tuple[bool, str]]:
    """Each line, and whether it is fixed."""
    before, blank = fenced, True
    for line in text.split("\n"):
        fence = _FENCE.match(line) is not None
        indented = line.startswith(("    ", "\t")) and not _ITEM.match(line) and (blank or before)
        fixed = fenced or fence or line.lstrip().startswith("|") or (indented and bool(line.strip()))
        yield fixed, line
        fenced ^= fence
        before, blank = fixed, not line.strip()
