"""A text as a page shows it: lines of prose and of code, with the query's terms marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.terms import Analyzer, tokens

_FENCE = re.compile(r"\s*(```|~~~)")
_ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s")


@dataclass(frozen=True)
class Piece:
    """Some characters of a text, and whether they are to be marked."""

    text: str
    marked: bool


@dataclass(frozen=True)
class Block:
    """Lines of a text; `fixed` ones are code or a table, whose characters stand below each other."""

    fixed: bool
    lines: list[list[Piece]]


class Marker:
    """Marks the terms of a query, stemmed as the run's BM25 stems them."""

    def __init__(self, analyzer: Analyzer, query: str) -> None:
        self._analyzer = analyzer
        self._terms = frozenset(analyzer.tokenize(query))

    def pieces(self, text: str) -> list[Piece]:
        """The whole text in order, cut where marks begin and end."""
        found, at = [], 0
        for start, end in self._spans(text):
            found += [Piece(text[at:start], False)] if start > at else []
            found.append(Piece(text[start:end], True))
            at = end
        return found + ([Piece(text[at:], False)] if at < len(text) else [])

    def blocks(self, text: str) -> list[Block]:
        """The text's lines: fenced or indented code and Markdown's tables apart from prose."""
        blocks: list[Block] = []
        for fixed, line in _lines(text):
            if not blocks or blocks[-1].fixed != fixed:
                blocks.append(Block(fixed, []))
            blocks[-1].lines.append(self.pieces(line))
        return blocks

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where terms of the query stand; overlapping pairs of characters are joined."""
        begun: tuple[int, int] | None = None
        for start, end in tokens(text):
            if not self._terms.intersection(self._analyzer.tokenize(text[start:end])):
                continue
            if begun and start < begun[1]:
                begun = begun[0], end
                continue
            if begun:
                yield begun
            begun = start, end
        if begun:
            yield begun


def _lines(text: str) -> Iterator[tuple[bool, str]]:
    """Each line, and whether it is fixed."""
    fenced = before = False
    blank = True
    for line in text.split("\n"):
        fence = _FENCE.match(line) is not None
        indented = line.startswith(("    ", "\t")) and not _ITEM.match(line) and (blank or before)
        fixed = fenced or fence or line.lstrip().startswith("|") or (indented and bool(line.strip()))
        yield fixed, line
        fenced ^= fence
        before, blank = fixed, not line.strip()
