"""Markdown and HTML as documents: front matter, titles, the main part of a page."""

from pathlib import Path

import pytest

from helpers.ingesting import ingest

PAGE = """<!doctype html><html><head><title> The  page </title><meta name="url" content="https://x.example/p">
<meta name="tenant" content="acme"><style>p {}</style></head><body><header>top</header><nav>menu</nav>
<main><h1>Big</h1><p>Some <b>bold</b> words.</p><script>evil()</script><form>ask</form>
<pre><code>a = 1</code></pre></main><footer>bottom</footer></body></html>"""


def test_front_matter_gives_title_url_tenant_and_id(tmp_path: Path) -> None:
    head = "---\ntitle: 2024-01-01\nurl: https://x.example\ntenant: acme\ndoc_id: 7\ntags: [a, b]\n---\n\n# Other\n"
    (row,) = ingest(tmp_path, {"a.md": head}).rows
    assert (row["doc_id"], row["title"], row["url"], row["tenant"]) == ("7", "2024-01-01", "https://x.example", "acme")
    assert row["text"] == "# Other"


@pytest.mark.parametrize(
    "text",
    ["---\n\nA rule above, one below\n\n---\n\nmore", "--- \nnever closed", "---\n- a list\n---\nmore"],
    ids=["rules", "open", "list"],
)
def test_rules_that_are_no_front_matter_stay_text(tmp_path: Path, text: str) -> None:
    (row,) = ingest(tmp_path, {"a.md": text}).rows
    assert row["text"] == text


def test_broken_front_matter_is_rejected(tmp_path: Path) -> None:
    got = ingest(tmp_path, {"a.md": "---\ntitle: [open\n---\ntext", "b.md": "fine"})
    (reject,) = got.rejects
    assert (reject["reason"], reject["file"], reject["stage"]) == ("broken front matter", "a.md", "ingest.documents")
    assert reject["payload"].startswith("---\ntitle: [open")
    assert got.funnel.dropped == {"broken front matter": 1}


def test_a_heading_in_a_code_block_is_no_title(tmp_path: Path) -> None:
    (row,) = ingest(tmp_path, {"a.md": "```bash\n# comment\n``` not closed by this\n```\n\n# Real #\n"}).rows
    assert row["title"] == "Real"


def test_html_becomes_markdown_of_its_main_part(tmp_path: Path) -> None:
    (row,) = ingest(tmp_path, {"p.html": PAGE}).rows
    assert (row["title"], row["url"], row["tenant"]) == ("The page", "https://x.example/p", "acme")
    assert row["text"] == "# Big\n\nSome **bold** words.\n\n```\na = 1\n```"


@pytest.mark.parametrize(
    ("page", "title", "text"),
    [
        ("<h1>Only h1</h1><p>body</p>", "Only h1", "# Only h1\n\nbody"),
        ("<body>out<article>in</article></body>", None, "in"),
        ("<body>out<div role=main>in</div></body>", None, "in"),
        ("<title>T</title>text", "T", "text"),
        ("<title> </title><body><h1>H</h1></body>", "H", "# H"),
        ("<?xml version='1.0'?><html><body>x</body></html>", None, "x"),
        ("https://x.example/", None, "https://x.example/"),
    ],
)
def test_html_without_a_main_part(tmp_path: Path, page: str, title: str | None, text: str) -> None:
    (row,) = ingest(tmp_path, {"p.htm": page}).rows
    assert (row["title"], row["text"]) == (title, text)


def test_html_nested_too_deeply_is_rejected(tmp_path: Path) -> None:
    got = ingest(tmp_path, {"deep.html": "<div>" * 5000 + "x", "a.md": "fine"})
    assert got.reasons == [("HTML nested too deeply", None)]
