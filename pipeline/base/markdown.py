"""Markdown as blocks of styled text: what pages show of a document, never its HTML.

Text from outside is data: raw HTML stays text, links and images become text with their address. Constructs that plain
text holds by chance stay as they are: `a*b*c`, `/*comment*/`, `__init__`, a `# comment` directly above another line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

Kind = Literal["prose", "heading", "bullet", "quotation", "fixed", "table", "rule"]

FENCE_PATTERN = r"^[ \t]*(?:```+[^`\n]*$|~~~)"
"""For re and RE2, multiline: a line that opens or closes fenced code. One with a backtick further on is inline code."""
_FENCE_LINE = re.compile(FENCE_PATTERN, re.MULTILINE)

MAX_PARAGRAPH = 3_000
"""Characters; emphasis and links of a longer paragraph are not parsed: brackets can take quadratic time."""

MAX_BLOCKS = 100_000
"""Characters between two fences or tables; more is shown as plain lines."""

MAX_COLUMNS = 8
"""Of a table; a wider one is shown as it is."""

_DELIMITER = re.compile(r":?-+:?")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_NO_EMPHASIS_BESIDE = re.compile(r"[A-Za-z0-9/\\=<>$&@%^+#]")


@dataclass(frozen=True)
class InlineRun:
    """Characters of one style; `styles` are HTML elements: strong, em, code, and small for the address of a link."""

    text: str
    styles: tuple[str, ...] = ()


@dataclass(frozen=True)
class MarkdownBlock:
    """A block of a text.

    Attributes:
        kind: `fixed` is code, or a table that cannot be drawn as one.
        runs: the text, with line breaks.
        rows: cells of a table; the first row holds the names.
        sign: bullet or number of a list's item.
        level: of a heading from 1, or the depth of a list or quotation.
    """

    kind: Kind
    runs: Sequence[InlineRun] = ()
    rows: Sequence[Sequence[Sequence[InlineRun]]] = ()
    sign: str = ""
    level: int = 0


class _Parser(MarkdownIt):
    """CommonMark without HTML, entities, references (their definitions would vanish) and underlined headings."""

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": False})
        self.disable(["inline", "text_join", "html_block", "html_inline", "entity", "reference", "lheading", "fence"])

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - the library's name
        """Show an address as it is written."""
        return url


_PARSER = _Parser()


def count_fences(text: str) -> int:
    """Lines of a text that open or close fenced code; after an odd number follows code."""
    return len(_FENCE_LINE.findall(text.replace("\r", "\n")))


def parse_blocks(text: str, *, fenced: bool = False) -> list[MarkdownBlock]:
    """The blocks of a text.

    Args:
        text: of a document, or a piece cut out of one.
        fenced: it begins within fenced code.
    """
    blocks: list[MarkdownBlock] = []
    unix = text.replace("\r\n", "\n").replace("\r", "\n")
    for kind, group in groupby(_lines(unix, fenced), key=lambda line: line[0]):
        lines = [line for _, line in group]
        if kind == "code":
            blocks.append(_fixed_width_block(lines))
        elif kind == "pipes":
            blocks.append(_table(lines))
        elif kind == "markdown":
            blocks += _blocks(lines)
    return [block for block in blocks if block.runs or block.rows or block.sign or block.kind == "rule"]


def _lines(text: str, fenced: bool) -> Iterator[tuple[str, str]]:
    """Each line, and what it belongs to: code, fence, pipes or markdown."""
    for line in text.split("\n"):
        if _FENCE_LINE.match(line):
            fenced = not fenced
            yield "fence", line
        elif fenced:
            yield "code", line
        else:
            yield "pipes" if line.lstrip().startswith("|") else "markdown", line


def _fixed_width_block(lines: Sequence[str]) -> MarkdownBlock:
    text = "\n".join(lines).rstrip()
    return MarkdownBlock("fixed", [InlineRun(text)] if text else [])


def _table(lines: Sequence[str]) -> MarkdownBlock:
    """A table with a line of dashes below its names; other lines with pipes stay as they are."""
    rows = [_CELL_BORDER.split(line.strip().removeprefix("|").removesuffix("|")) for line in lines]
    if len(rows) < 2 or not all(_DELIMITER.fullmatch(cell.strip()) for cell in rows.pop(1)):
        return _fixed_width_block(lines)
    columns = max(map(len, rows))
    if columns > MAX_COLUMNS:
        return _fixed_width_block(lines)
    padded = [row + [""] * (columns - len(row)) for row in rows]
    cells = [[parse_inline(cell.strip().replace("\\|", "|")) for cell in row] for row in padded]
    return MarkdownBlock("table", rows=cells)


@dataclass
class _State:
    """Where the reader of tokens is: nested lists with their signs, quotations, and the sign still to be printed."""

    lines: Sequence[str]
    lists: int = 0
    quotes: int = 0
    sign: str = ""
    level: int = 0
    blocks: list[MarkdownBlock] = field(default_factory=list)

    def add(self, kind: Kind, runs: Sequence[InlineRun]) -> None:
        if kind == "prose" and self.lists:
            self.blocks.append(MarkdownBlock("bullet", runs, sign=self.sign, level=self.lists))
            self.sign = ""
        elif kind == "prose" and self.quotes:
            self.blocks.append(MarkdownBlock("quotation", runs, level=self.quotes))
        else:
            self.blocks.append(MarkdownBlock(kind, runs, level=self.level))


def _blocks(lines: Sequence[str]) -> list[MarkdownBlock]:
    text = "\n".join(lines)
    if len(text) > MAX_BLOCKS:
        return [MarkdownBlock("prose", [InlineRun(text)])]
    state = _State(lines)
    for token in _PARSER.parse(text):
        _read_block(token, state)
    return state.blocks


def _read_block(token: Token, state: _State) -> None:
    match token.type:
        case "bullet_list_open" | "ordered_list_open":
            state.lists += 1
        case "bullet_list_close" | "ordered_list_close":
            state.lists -= 1
        case "blockquote_open":
            state.quotes += 1
        case "blockquote_close":
            state.quotes -= 1
        case "list_item_open":
            state.sign = token.info + token.markup if token.info else {"+": "+"}.get(token.markup, "•")
        case "list_item_close" if state.sign:
            state.add("prose", [])
        case "heading_open":
            state.level = int(token.tag[1])
        case "heading_close":
            state.level = 0
        case "hr":
            state.add("rule", [])
        case "code_block":
            state.add("fixed", [InlineRun(token.content.rstrip())])
        case "inline":
            _read_text(token, state)


def _read_text(token: Token, state: _State) -> None:
    """A paragraph, or a heading; a single # directly above another line is rather a comment in plain text."""
    first, end = token.map or (0, 0)
    comment = state.level == 1 and end < len(state.lines) and state.lines[end].strip()
    if comment:
        state.level = 0
        state.add("prose", parse_inline(state.lines[first].strip()))
        return
    state.add("heading" if state.level else "prose", parse_inline(token.content))


def parse_inline(text: str) -> list[InlineRun]:
    """The runs of a paragraph: emphasis, code, and links as text with their address."""
    if len(text) > MAX_PARAGRAPH:
        return [InlineRun(text)] if text else []
    tokens: list[Token] = []
    _PARSER.inline.parse(text, _PARSER, {}, tokens)
    return [run for run in _runs(tokens) if run.text]


def _runs(tokens: Sequence[Token]) -> list[InlineRun]:
    literal = _literal(tokens)
    runs: list[InlineRun] = []
    styles: list[str] = []
    links: list[tuple[str, int]] = []
    for position, token in enumerate(tokens):
        name, _, end = token.type.rpartition("_")
        if token.type in ("softbreak", "hardbreak"):
            runs.append(InlineRun("\n", tuple(styles)))
        elif position in literal:
            runs.append(InlineRun(token.markup, tuple(styles)))
        elif name in ("em", "strong"):
            styles = [*styles, name] if end == "open" else styles[:-1]
        elif token.type == "link_open":
            links.append((_address(token, "href"), len(runs)))
        elif token.type == "link_close":
            address, start = links.pop()
            shown = "".join(run.text for run in runs[start:])
            runs += [InlineRun(f" ({address})", ("small",))] if address.removeprefix("mailto:") != shown else []
        elif token.type == "image":
            runs += [InlineRun(token.content, tuple(styles)), InlineRun(f" ({_address(token, 'src')})", ("small",))]
        else:
            runs.append(InlineRun(token.content, (*styles, "code") if token.type == "code_inline" else tuple(styles)))
    return runs


def _address(token: Token, name: str) -> str:
    """Where a link leads, and its title."""
    title = token.attrGet("title")
    return f"{token.attrGet(name)} “{title}”" if title else str(token.attrGet(name))


def _literal(tokens: Sequence[Token]) -> set[int]:
    """Places of the signs of emphasis that rather belong to a word, a formula or code, and are printed."""
    opened: list[int] = []
    positions: set[int] = set()
    for position, token in enumerate(tokens):
        if token.type in ("em_open", "strong_open"):
            opened.append(position)
        elif token.type in ("em_close", "strong_close"):
            first = opened.pop()
            before = tokens[first - 1].content[-1:] if first else ""
            after = tokens[position + 1].content[:1] if position + 1 < len(tokens) else ""
            name = token.markup == "__" and re.fullmatch(
                r"\w+", "".join(content_token.content for content_token in tokens[first:position])
            )
            if name or _NO_EMPHASIS_BESIDE.match(before) or _NO_EMPHASIS_BESIDE.match(after):
                positions |= {first, position}
    return positions
