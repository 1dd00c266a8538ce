"""Headings of Markdown texts, in time linear in the length; lines in fenced code are no headings."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(
    r"^ {0,3}(?:(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})(?P<info>.*)|(?P<level>#{1,6})[ \t]+(?P<text>.*))$", re.M
)


class Heading(NamedTuple):
    """A heading line.

    Attributes:
        start: offset of its first `#`.
        end: offset of the end of the line.
        level: 1 to 6.
        text: without surrounding white space and closing `#`; not empty.
    """

    start: int
    end: int
    level: int
    text: str


def find_headings(text: str) -> Iterator[Heading]:
    """Yield the headings outside of fenced code; underlined headings are not recognized."""
    fence = ""
    for match in _LINE.finditer(text):
        if mark := match["fence"]:
            if not fence:
                fence = mark
            elif mark.startswith(fence) and not match["info"].strip():  # a closing fence has no info
                fence = ""
        elif not fence and (title := _heading_text(match["text"])):
            yield Heading(match.start("level"), match.end(), len(match["level"]), title)


def _heading_text(heading: str) -> str:
    text = heading.strip()
    bare = text.rstrip("#")
    return bare.rstrip() if bare.endswith((" ", "\t")) or not bare else text
