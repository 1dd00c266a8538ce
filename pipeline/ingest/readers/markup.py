"""Markdown, HTML and plain text as documents: a title, a text and the values of their head."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from darklode.pipeline.ingest.readers.front_matter import BadHeadError, Head, front_matter

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

CHROME = ["script", "style", "nav", "header", "footer", "aside", "form"]
_HEADING = re.compile(r"^ {0,3}(?:(?P<fence>`{3,}|~{3,})(?P<info>.*)|#[ \t]+(?P<title>.*))$", re.M)


class BadDocumentError(Exception):
    """A file that is no document; the message is the reason."""


@dataclass(frozen=True)
class Prose:
    """A document as its file gives it; `head` holds front matter or meta elements."""

    title: str | None
    text: str
    head: Head


def read_prose(text: str, kind: str) -> Prose:
    """Read a document of kind `markdown`, `html` or `text`; line ends become \\n.

    Raises:
        BadDocumentError: the front matter cannot be read, or the HTML is nested too deeply.
    """
    unix = text.replace("\r\n", "\n").replace("\r", "\n")
    if kind == "markdown":
        return _markdown(unix)
    return _html(unix) if kind == "html" else Prose(None, unix, {})


def _markdown(text: str) -> Prose:
    try:
        head, body = front_matter(text)
    except BadHeadError as error:
        raise BadDocumentError(str(error)) from error
    return Prose(_first_heading(body), body, head)


def _first_heading(text: str) -> str | None:
    fence = ""
    for match in _HEADING.finditer(text):
        if mark := match["fence"]:
            fence = _fence(fence, mark, match["info"])
        elif not fence and (title := _bare(match["title"])):
            return title
    return None


def _bare(heading: str) -> str:
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


# Elements that nest without end; others close one another, or have no content.
_OPENED = re.compile(r"<(/?)(?!(?:p|li|dt|dd|t[dhr]|option|br|hr|img|input|meta|link|wbr|col|area|base)\b)[a-z]", re.I)
MOST_DEPTH = 2000


def _html(text: str) -> Prose:
    from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning
    from selectolax.lexbor import LexborHTMLParser

    depth = 0
    for match in _OPENED.finditer(text):
        depth += -1 if match[1] else 1
        if depth > MOST_DEPTH:  # the time for deeper ones grows with the square of the depth
            raise BadDocumentError("HTML nested too deeply")
    whole = LexborHTMLParser(text).html or ""  # well-formed: of any other, html.parser's time may grow quadratically
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MarkupResemblesLocatorWarning)
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        try:
            return _page(BeautifulSoup(whole, "html.parser"))
        except RecursionError as error:
            raise BadDocumentError("HTML nested too deeply") from error


def _words(element: Tag | None) -> str | None:
    return (" ".join(element.get_text(" ").split()) or None) if element else None


def _page(page: BeautifulSoup) -> Prose:
    from bs4 import Tag
    from markdownify import ATX, MarkdownConverter

    head: Head = {
        str(meta["name"]): str(meta["content"]) for meta in page.find_all("meta", attrs={"name": True, "content": True})
    }
    title = _words(page.title) or _words(page.find("h1"))
    main = page.find("main") or page.find("article") or page.find(None, {"role": "main"}) or page.body or page
    if not isinstance(main, Tag):
        raise BadDocumentError("no HTML")
    for element in main.find_all(CHROME):
        element.decompose()
    for items in main.find_all("ol"):
        for number, item in enumerate(items.find_all("li", recursive=False)):
            # MarkdownConverter counts the items before each, which takes the square of their number
            vars(item)["find_previous_siblings"] = lambda *_, before=number: range(before)
    if main is page:
        for element in main.find_all(["head", "title"]):
            element.decompose()
    return Prose(title, str(MarkdownConverter(heading_style=ATX).convert_soup(main)).strip(), head)
