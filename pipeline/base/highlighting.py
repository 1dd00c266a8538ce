"""A text as a page shows it: Markdown's blocks, with the words marked that matter."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Self

from darklode.pipeline.base.markdown import FENCE_PATTERN, InlineRun, Kind, MarkdownBlock, count_fences, parse_blocks
from darklode.pipeline.base.terms import Analyzer, tokens, words

COUNT_FENCES_SQL = f"len(regexp_extract_all(replace({{text}}, chr(13), chr(10)), '(?m){FENCE_PATTERN}'))"
"""SQL of `count_fences` for `{text}`."""

BEGINS_FENCED_SQL = f"""coalesce({COUNT_FENCES_SQL.format(text='left(d.text, c."start")')} % 2 = 1, false)"""
"""SQL: whether chunk c of document d begins within fenced code; false without a document."""


@dataclass(frozen=True)
class Piece:
    """Some characters of a text, whether they are to be marked, and the HTML elements of their style."""

    text: str
    marked: bool
    styles: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextBlock:
    """A block of a text; all but `lines` and `rows`, whose words are marked, is as in `MarkdownBlock`."""

    kind: Kind
    lines: list[list[Piece]] = field(default_factory=list)
    rows: list[list[list[Piece]]] = field(default_factory=list)
    sign: str = ""
    level: int = 0


class Highlighter:
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
        terms = [term for part in parts for term in words(fold_case(part))]
        return cls(lambda word: any(part in fold_case(word) for part in terms))

    def pieces(self, text: str) -> list[Piece]:
        """The whole text in order, cut where marks begin and end."""
        pieces, at = [], 0
        for start, end in self._spans(text):
            pieces += [Piece(text[at:start], False)] if start > at else []
            pieces.append(Piece(text[start:end], True))
            at = end
        return pieces + ([Piece(text[at:], False)] if at < len(text) else [])

    def blocks(self, text: str, *, fenced: bool = False) -> list[TextBlock]:
        """The text's blocks, read as Markdown.

        Args:
            text: of a document, or a piece cut out of one.
            fenced: it begins within fenced code.
        """
        return [self._block(block) for block in parse_blocks(text, fenced=fenced)]

    def _block(self, block: MarkdownBlock) -> TextBlock:
        lines = _split_lines(self._highlight_runs(block.runs)) if block.runs else []
        rows = [[self._highlight_runs(cell) for cell in row] for row in block.rows]
        return TextBlock(block.kind, lines, rows, block.sign, block.level)

    def _highlight_runs(self, runs: Sequence[InlineRun]) -> list[Piece]:
        """Pieces of one style each; a word of several styles is marked as a whole."""
        cuts = self.pieces("".join(run.text for run in runs))
        marks = [
            (end, piece.marked) for piece, end in zip(cuts, accumulate(len(cut.text) for cut in cuts), strict=True)
        ]
        pieces: list[Piece] = []
        at, mark = 0, 0
        for run in runs:
            end = at + len(run.text)
            while at < end:
                until = min(end, marks[mark][0])
                pieces.append(Piece(run.text[len(run.text) - (end - at) :][: until - at], marks[mark][1], run.styles))
                at = until
                mark += at == marks[mark][0]
        return pieces

    def cut(self, parts: Sequence[str]) -> list[list[TextBlock]]:
        """The blocks of each piece of a text that was cut, none where a piece is empty."""
        before = accumulate(map(count_fences, parts), initial=0)
        ends = [part.strip("\n") for part in parts]
        return [
            self.blocks(end, fenced=fences % 2 == 1) if end else [] for end, fences in zip(ends, before, strict=False)
        ]

    def collapse(self, text: str, characters: int, *, fenced: bool = False) -> tuple[list[TextBlock], list[TextBlock]]:
        """What is shown of a text at once, as for `clip`, and all of it, none where that is no more."""
        all_blocks = self.blocks(text, fenced=fenced) if len(text) > characters else []
        return self.clip(text, characters, fenced=fenced), all_blocks

    def clip(self, text: str, characters: int, *, fenced: bool = False) -> list[TextBlock]:
        """About so many characters of the text, from the line of the first mark on.

        Args:
            text: as for `blocks`, as is `fenced`.
            characters: a text that has no more is shown whole.
            fenced: see there.
        """
        begin, end = self._window(text, characters)
        fences = count_fences(text[:begin])
        blocks = self.blocks(text[begin:end].rstrip(), fenced=fenced ^ (fences % 2 == 1))
        if begin:
            if not blocks or not blocks[0].lines:
                blocks.insert(0, TextBlock("prose", [[]]))
            blocks[0].lines[0].insert(0, Piece("… ", False))
        if end < len(text):
            if not blocks or not blocks[-1].lines:
                blocks.append(TextBlock("prose", [[]]))
            blocks[-1].lines[-1].append(Piece(" …", False))
        return blocks

    def excerpt(self, text: str, characters: int) -> list[Piece]:
        """The same part of the text as `clip` shows, not read as Markdown."""
        begin, end = self._window(text, characters)
        before, after = [Piece("… ", False)] * bool(begin), [Piece(" …", False)] * (end < len(text))
        return [*before, *self.pieces(text[begin:end].rstrip()), *after]

    def _window(self, text: str, characters: int) -> tuple[int, int]:
        """Where the part of a text that is shown begins and ends."""
        if len(text) <= characters:
            return 0, len(text)
        mark = next(self._spans(text), (0, 0))[0]
        begin = text.rfind("\n", 0, min(mark, len(text) - characters) + 1) + 1
        if mark - begin > characters // 2:  # far into a long line
            begin = text.rfind(" ", begin, mark - characters // 4) + 1 or begin
        end = begin + characters
        if end < len(text):
            end = next((at for at in (text.rfind(sign, begin + characters // 2, end) for sign in "\n ") if at > 0), end)
        return begin, end

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


def fold_case(text: str) -> str:
    """A text without case and accents."""
    parts = unicodedata.normalize("NFKD", text.lower())
    return "".join(char for char in parts if not unicodedata.combining(char))


def _split_lines(pieces: Sequence[Piece]) -> list[list[Piece]]:
    lines: list[list[Piece]] = [[]]
    for piece in pieces:
        for line_number, part in enumerate(piece.text.split("\n")):
            if line_number:
                lines.append([])
            if part:
                lines[-1].append(Piece(part, piece.marked, piece.styles))
    return lines
