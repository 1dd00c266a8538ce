"""Markdown, HTML and plain text as documents: a title, a text and the values of their head."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from darklode.pipeline.ingest.readers.front_matter import BadHeadError, Head, front_matter
from darklode.pipeline.ingest.readers.html import TooDeepError, read_html

_HEADING = re.compile(r"^ {0,3}(?:(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})(?P<info>.*)|#[ \t]+(?P<title>.*))$", re.M)


class BadDocumentError(Exception):
    """A file that is no document; the message is the reason."""


@dataclass(frozen=True)
class Prose:
    """A document as its file gives it.

    Attributes:
        title: the title, where the text has one.
        text: the text.
        head: values of front matter, or of meta elements.
        removed: text of the file that is no part of the document, by reason.
    """

    title: str | None
    text: str
    head: Head
    removed: dict[str, str] = field(default_factory=dict)


def read_prose(text: str, kind: str) -> Prose:
    """Read a document of kind `markdown`, `html` or `text`; line ends become \\n.

    Raises:
        BadDocumentError: the front matter cannot be read, or the HTML is nested too deeply.
    """
    unix = text.replace("\r\n", "\n").replace("\r", "\n")
    if kind == "markdown":
        return _parse_markdown(unix)
    return _html(unix) if kind == "html" else Prose(None, unix, {})


def _parse_markdown(text: str) -> Prose:
    head, body = _split(text)
    return Prose(_first_heading(body), body, head)


def _split(text: str) -> tuple[Head, str]:
    try:
        return front_matter(text)
    except BadHeadError as error:
        raise BadDocumentError(str(error)) from error


def _html(text: str) -> Prose:
    head, body = _split(text)
    try:
        page = read_html(body)
    except TooDeepError as error:
        raise BadDocumentError("HTML nested too deeply") from error
    return Prose(page.title, page.text, page.meta | head, page.removed)


def _first_heading(text: str) -> str | None:
    fence = ""
    for match in _HEADING.finditer(text):
        if mark := match["fence"]:
            fence = _fence(fence, mark, match["info"])
        elif not fence and (title := _heading_text(match["title"])):
            return title
    return None


def _heading_text(heading: str) -> str:
    """A heading without the white space around it and the # that may close it."""
    text = heading.strip()
    bare = text.rstrip("#")
    return bare.rstrip() if bare.endswith((" ", "\t")) or not bare else text


def _fence(opened: str, mark: str, info: str) -> str:
    """The fence that is open after a fence line: a closing one is as long as the opening one, and bare."""
    if not opened:
        return mark
    closes = mark.startswith(opened) and not info.strip()
    return "" if closes else opened
