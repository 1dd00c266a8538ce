"""Parse Markdown, HTML and plain text into title, text and front matter."""

from __future__ import annotations

from dataclasses import dataclass, field

from darklode.pipeline.base.headings import find_headings
from darklode.pipeline.ingest.readers.front_matter import BadHeadError, Head, front_matter
from darklode.pipeline.ingest.readers.html import TooDeepError, read_html


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
    return Prose(next((heading.text for heading in find_headings(body) if heading.level == 1), None), body, head)


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
