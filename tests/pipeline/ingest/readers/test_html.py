"""HTML pages of many shapes: nothing of their content is lost, and what is left out is told."""

import re
from collections import Counter
from pathlib import Path

import pytest
import trafilatura
from lxml import html as lxml_html

from darklode.pipeline.ingest.readers.html import NAVIGATION_REASON, OPTIONS_REASON, OUTSIDE_MAIN_REASON, read_html
from helpers.html_pages import pages
from helpers.ingesting import ingest

PAGES = pages()


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text)


def text_nodes(page: str) -> str:
    body = lxml_html.fromstring(page).body
    return " ".join(body.xpath(".//text()[not(ancestor::script or ancestor::style)]"))


def test_there_are_55_shapes() -> None:
    assert len(PAGES) == 55


@pytest.mark.parametrize("name", PAGES)
def test_content_is_kept_and_navigation_is_not(name: str) -> None:
    page = read_html(PAGES[name])
    assert set(re.findall(r"keep\d+", PAGES[name])) == set(re.findall(r"keep\d+", page.text))
    assert re.findall(r"drop\d+", page.text) == []


@pytest.mark.parametrize("name", PAGES)
def test_each_word_of_a_page_is_kept_or_removed_with_a_reason(name: str) -> None:
    page = read_html(PAGES[name])
    images = re.findall(r"alt='(\w+)'|src=(\w+).(\w+)", PAGES[name])
    links = re.findall(r"\]\(([^)]*)\)", page.text)
    numbers = re.findall(r"^ *(\d+)\. ", page.text, re.MULTILINE)
    added = Counter(words(" ".join([*(word for image in images for word in image), *numbers])))
    if not images:
        added += Counter(words(" ".join(links)))
    got = Counter(words(f"{page.text} {' '.join(page.removed.values())}"))
    assert got - added == Counter(words(text_nodes(PAGES[name])))


def test_nothing_that_trafilatura_finds_is_lost() -> None:
    """The content found by an extractor of another make, and how much of it either finds."""
    recall = {"ours": 0, "trafilatura": 0}
    for name, source in PAGES.items():
        content = set(re.findall(r"keep\d+", source))
        ours = set(words(read_html(source).text))
        theirs = set(words(trafilatura.extract(source, favor_recall=True, include_comments=False) or ""))
        assert not (theirs - ours) & content, name
        recall["ours"] += len(content & ours)
        recall["trafilatura"] += len(content & theirs)
    assert recall["ours"] > recall["trafilatura"] > 100


def test_removed_text_becomes_rejects(tmp_path: Path) -> None:
    page = (
        "<nav><a href=/>Home</a></nav><main>This page has a text.<select><option>Peru</select></main>"
        "<div>Cookies? <button>Yes</button></div>"
    )
    got = ingest(tmp_path, {"p.html": page, "q.html": "<main>Only text.</main>"}, max_reject_share=0)
    assert [row["text"] for row in got.rows] == ["This page has a text.", "Only text."]
    assert [(row["reason"], row["file"], row["payload"]) for row in got.rejects] == [
        (OPTIONS_REASON, "p.html", "Peru"),
        (NAVIGATION_REASON, "p.html", "Home"),
        (OUTSIDE_MAIN_REASON, "p.html", "Cookies? Yes"),
    ]
    assert (got.funnel.rows_in, got.funnel.rows_out) == (5, 2)
