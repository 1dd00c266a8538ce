"""Convert an HTML page to Markdown; navigation and text outside `<main>` are removed and reported."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag
    from bs4.element import PageElement

NAVIGATION_REASON = "navigation of an HTML page"
OUTSIDE_MAIN_REASON = "outside the main element of an HTML page"
OPTIONS_REASON = "options of an HTML form"

MAX_DEPTH = 2000  # maximum nesting of elements; deeper pages are rejected
MIN_LINK_SHARE = 0.5
"""Minimum share of link text for an `<aside>`, `<nav>` or block named as navigation to count as navigation."""

_TAG_OF_ROLE = {
    "main": "main",
    "navigation": "nav",
    "banner": "header",
    "contentinfo": "footer",
    "complementary": "aside",
    "search": "search",
    "article": "article",
    "region": "section",
}
_SECTIONING_TAGS = {"article", "aside", "main", "nav", "section"}
"""A header or footer inside one of these belongs to it, as in HTML-ARIA; otherwise it is the page's."""
_HEADING_TAGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_CONTENT_TAGS = {"main", "article", "h1"}
"""A block with one of these is not navigation, whatever its name: `has-sidebar` names the layout around both."""
_LANDMARKS = _CONTENT_TAGS | _HEADING_TAGS
_BLOCK_TAGS = {"div", "ul", "ol", "table", "td", "p"}
_NAVIGATION_NAME = re.compile(
    r"(?:^|[\W_])(?:nav|navbar|navigation|menu|menubar|breadcrumbs?|pagination|pager|sidebar|topbar|footer)(?:$|[\W_])",
    re.I,
)
# Tags of elements that can nest without limit; others close one another or are empty.
_NESTING_TAG = re.compile(
    r"<(/?)(?!(?:p|li|dt|dd|t[dhr]|option|br|hr|img|input|meta|link|wbr|col|area|base)\b)[a-z]", re.I
)


class TooDeepError(Exception):
    """HTML nested so deeply that reading it takes too long."""


@dataclass(frozen=True)
class HtmlPage:
    """Content of an HTML page.

    Attributes:
        title: from `<title>`, else the first `<h1>`.
        text: content as Markdown.
        meta: `content` of the meta elements by name.
        removed: removed text by reason.
    """

    title: str | None
    text: str
    meta: dict[str, str | None]
    removed: dict[str, str]


def read_html(text: str) -> HtmlPage:
    """Parse a page.

    All text of the body is kept, except navigation (`<nav>`, the page's own `<header>` without a heading, its
    `<footer>`, blocks of links named as navigation), options of forms, and, if there is a `<main>`, text outside it.

    Raises:
        TooDeepError: elements are nested more than MAX_DEPTH deep.
    """
    from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning
    from selectolax.lexbor import LexborHTMLParser

    depth = 0
    for match in _NESTING_TAG.finditer(text):
        depth += -1 if match[1] else 1
        if depth > MAX_DEPTH:
            raise TooDeepError
    well_formed = LexborHTMLParser(text).html or ""  # html.parser can take quadratic time on malformed HTML
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MarkupResemblesLocatorWarning)
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        try:
            return _page(BeautifulSoup(well_formed, "html.parser"))
        except RecursionError as error:
            raise TooDeepError from error


def _page(soup: BeautifulSoup) -> HtmlPage:
    """Separate content, meta elements and removed text of a parsed page."""
    meta: dict[str, str | None] = {
        str(tag["name"]): str(tag["content"]) for tag in soup.find_all("meta", attrs={"name": True, "content": True})
    }
    title = _words(soup.title) or _words(soup.find("h1"))
    for element in soup.find_all(["script", "style", "head"]):
        element.decompose()
    root = soup.body or soup
    removed = {OPTIONS_REASON: [element.extract() for element in root.find_all(["select", "datalist"])]}
    navigation = list(_navigation(root))
    if _text_length(root) == sum(_text_length(element) for element in navigation):
        navigation = []  # a page of only links is content
    removed[NAVIGATION_REASON] = [element.extract() for element in navigation]
    mains = _mains(root)
    if mains:
        contents = [element.extract() for element in mains]
        removed[OUTSIDE_MAIN_REASON] = [root]
    else:
        contents = [root]
    texts = {reason: " ".join(filter(None, map(_words, elements))) for reason, elements in removed.items()}
    markdown = "\n\n".join(filter(None, map(_to_markdown, contents)))
    return HtmlPage(title, markdown, meta, {reason: text for reason, text in texts.items() if text})


def _words(element: Tag | None) -> str | None:
    """Text of an element with single spaces; None if it has none."""
    return (" ".join(element.get_text(" ").split()) or None) if element else None


def _text_length(element: Tag) -> int:
    """Characters of an element's text, without white space."""
    return len("".join(element.get_text().split()))


def _to_markdown(root: Tag) -> str:
    """Convert an element to Markdown."""
    from markdownify import ATX, MarkdownConverter

    for items in root.find_all("ol"):
        for number, item in enumerate(items.find_all("li", recursive=False)):
            # MarkdownConverter counts the previous siblings of each item: quadratic
            vars(item)["find_previous_siblings"] = lambda *_, before=number: range(before)
    return str(MarkdownConverter(heading_style=ATX).convert_soup(root)).strip()


def _role(tag: Tag) -> str:
    """The element's name, or the one that corresponds to its ARIA role."""
    return _TAG_OF_ROLE.get(str(tag.get("role", "")).strip().lower(), tag.name)


def _mains(root: Tag) -> list[Tag]:
    """The outermost main elements; empty if their text is less than half of the non-link text outside them."""
    mains = list(root.find_all(lambda tag: _role(tag) == "main"))
    ids = {id(tag) for tag in mains}
    mains = [tag for tag in mains if not any(id(parent) in ids for parent in tag.parents)]
    sizes = _TextSizes(root)
    inside = sum(sizes.measure(tag)[0] for tag in mains)
    outside = sizes.prose - sum(sizes.measure(tag)[0] - sizes.measure(tag)[1] for tag in mains)
    return mains if inside and 2 * inside >= outside else []


def _navigation(root: Tag) -> Iterator[Tag]:
    """Yield the outermost navigation elements in document order."""
    from bs4 import Tag

    sizes = _TextSizes(root)
    stack: list[tuple[PageElement, bool]] = [(child, False) for child in reversed(root.contents)]
    while stack:
        element, sectioned = stack.pop()
        if not isinstance(element, Tag):
            continue
        if _is_navigation(element, sizes, sectioned=sectioned):
            yield element
            continue
        inside = sectioned or _role(element) in _SECTIONING_TAGS
        stack += [(child, inside) for child in reversed(element.contents)]


def _is_navigation(tag: Tag, sizes: _TextSizes, *, sectioned: bool) -> bool:
    """Whether an element is navigation; `sectioned`: it is inside main, an article or a section."""
    role = _role(tag)
    text, links = sizes.measure(tag)
    mostly_links = links >= MIN_LINK_SHARE * text
    if not text or sizes.contains_landmark(tag, {"main"}) or (sectioned and role != "nav"):
        return False
    match role:
        case "nav":
            return mostly_links or not sectioned
        case "aside":
            return mostly_links
        case "header":
            return mostly_links or not sizes.contains_landmark(tag, _HEADING_TAGS)
        case "footer" | "search":
            return True
    has_navigation_name = tag.name in _BLOCK_TAGS and _NAVIGATION_NAME.search(_id_and_classes(tag)) is not None
    return (
        has_navigation_name
        and mostly_links
        and not sizes.contains_landmark(tag, _CONTENT_TAGS)
        and text - links < max(1, sizes.prose / 2)
    )


def _id_and_classes(tag: Tag) -> str:
    """The id and the classes of an element, joined by spaces."""
    return " ".join([str(tag.get("id", "")), *map(str, tag.get_attribute_list("class"))])


class _TextSizes:
    """Text length, link text length and landmarks of each element below a root, computed in one pass.

    Landmarks are main elements, articles and headings, which navigation does not contain.

    Attributes:
        prose: characters of the root outside links.
    """

    def __init__(self, root: Tag) -> None:
        from bs4 import Tag
        from bs4.element import NavigableString

        self._sizes: dict[int, tuple[int, int]] = {}
        self._landmarks: dict[int, set[str]] = {}
        for element in reversed([root, *root.descendants]):
            if isinstance(element, Tag):
                text, links = self.measure(element)
                size = (text, text if element.name == "a" else links)
                self._sizes[id(element)] = size
                landmarks = self._landmarks.get(id(element), set()) | ({_role(element), element.name} & _LANDMARKS)
                if landmarks:
                    self._landmarks[id(element)] = landmarks
                    self._landmarks.setdefault(id(element.parent), set()).update(landmarks)
            elif type(element) is NavigableString:
                size = (len("".join(element.split())), 0)
            else:
                continue
            if element is not root and element.parent is not None:
                parent_text, parent_links = self.measure(element.parent)
                self._sizes[id(element.parent)] = (parent_text + size[0], parent_links + size[1])
        text, links = self.measure(root)
        self.prose = text - links

    def measure(self, element: PageElement) -> tuple[int, int]:
        """Characters of text, and of link text."""
        return self._sizes.get(id(element), (0, 0))

    def contains_landmark(self, element: PageElement, landmarks: set[str]) -> bool:
        """Whether an element is or contains one of these landmarks."""
        return not landmarks.isdisjoint(self._landmarks.get(id(element), ()))
