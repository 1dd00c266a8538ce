"""Parse Markdown, HTML and plain text into title, text and front matter."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from darklode.pipeline.ingest.readers.front_matter import BadHeadError, Head, front_matter
from darklode.pipeline.ingest.readers.html import TooDeepError, read_html

_HEADING = re.compile(r"^ {0,3}(?:(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})(?P<info>.*)|#[ \t]+(?P<title>.*))$", re.M)


class BadDocumentError(Exception):
    """An invalid document file; the message is the reject reason."""


@dataclass(frozen=True)
class Prose:
    """A parsed document file.

    Attributes:
        title: title, if there is one.
        text: body.
        head: values of front matter or of meta elements.
        removed: removed text by reason.
    """

    title: str | None
    text: str
    head: Head
    removed: dict[str, str] = field(default_factory=dict)


def read_prose(text: str, kind: str) -> Prose:
    """Parse a document of kind `markdown`, `html` or `text`; line ends become \\n.

    Raises:
        BadDocumentError: invalid front matter, or HTML nested too deeply.
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
    """A heading without surrounding white space and closing #."""
    text = heading.strip()
    bare = text.rstrip("#")
    return bare.rstrip() if bare.endswith((" ", "\t")) or not bare else text


def _fence(opened: str, mark: str, info: str) -> str:
    """The open code fence after a fence line. A closing fence is at least as long as the opening one, without info."""
    if not opened:
        return mark
    closes = mark.startswith(opened) and not info.strip()
    return "" if closes else opened
