"""Markdown and HTML as documents: front matter, titles, the main part of a page."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.ingesting import ingest

PAGE = """<!doctype html><html><head><title> The  page </title><meta name="url" content="https://x.example/p">
<meta name="tenant" content="acme"><style>p {}</style></head><body><header>top</header><nav>menu</nav>
<main><h1>Big</h1><p>Some <b>bold</b> words.</p><script>evil()</script><form>Ask us.</form>
<pre><code>a = 1</code></pre></main><footer>bottom</footer></body></html>"""


def test_front_matter_gives_title_url_tenant_and_id(tmp_path: Path) -> None:
    head = "---\ntitle: 2024-01-01\nurl: https://x.example\ntenant: acme\ndoc_id: 7\ntags: [a, b]\n---\n\n# Other\n"
    (row,) = ingest(tmp_path, {"a.md": head}).rows
    assert (row["doc_id"], row["title"], row["url"], row["tenant"]) == ("7", "2024-01-01", "https://x.example", "acme")
    assert row["text"] == "# Other"


def test_broken_front_matter_is_rejected(tmp_path: Path) -> None:
    got = ingest(tmp_path, {"a.md": "---\ntitle: [open\n---\ntext", "b.md": "fine"})
    (reject,) = got.rejects
    assert (reject["reason"], reject["file"], reject["stage"]) == ("broken front matter", "a.md", "ingest.documents")
    assert reject["payload"].startswith("---\ntitle: [open")
    assert got.funnel.dropped == {"broken front matter": 1}


def test_a_heading_in_a_code_block_is_no_title(tmp_path: Path) -> None:
    (row,) = ingest(tmp_path, {"a.md": "```bash\n# comment\n``` not closed by this\n```\n\n# Real #\n"}).rows
    assert row["title"] == "Real"


def test_a_line_of_inline_code_opens_no_code_block(tmp_path: Path) -> None:
    (row,) = ingest(tmp_path, {"a.md": "```npm install acme```\n\n# Real\n"}).rows
    assert row["title"] == "Real"


def test_html_becomes_markdown_of_its_main_part(tmp_path: Path) -> None:
    (row,) = ingest(tmp_path, {"p.html": PAGE}).rows
    assert (row["title"], row["url"], row["tenant"]) == ("The page", "https://x.example/p", "acme")
    assert row["text"] == "# Big\n\nSome **bold** words.\n\nAsk us.\n\n```\na = 1\n```"


@pytest.mark.parametrize(
    ("page", "title", "text"),
    [
        ("<h1>Only h1</h1><p>body</p>", "Only h1", "# Only h1\n\nbody"),
        ("<body>out<article>in</article></body>", None, "out\n\nin"),
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


HOSTILE = {
    "conditional": "<![ x" * 20_000,
    "unclosed tags": "<a " * 40_000,
    "comments": "<!--" * 160_000,
    "a long list": "<ol>" + "<li>x</li>" * 8_000 + "</ol>",
    "formatting": "<p><b><i><u>" * 2_000,
    "tables": "<table>" * 5_000,
    "attributes": "<a" + " x=1" * 100_000 + ">",
    "entities": "&amp" * 100_000,
    "divisions": "<div>" * 100_000,
    "lists": "<ul><li>" * 20_000,
    "nested navigation": "<div class=nav>text" * 1_900,
    "nested headers": "<header>text" * 1_900 + "<h1>x",
    "nested mains": "<main>text" * 1_900,
    "many mains": "<main>text</main>" * 5_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_html_is_read_in_time_that_grows_with_its_length(name: str) -> None:
    """Two of these took minutes; a limit of the processor's seconds ends the process where one does again."""
    code = """
import resource, sys
from darklode.pipeline.ingest.readers.markup import BadDocumentError, read_prose
text = sys.stdin.read()
read_prose("<p>warm</p>", "html")
spent = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime)
resource.setrlimit(resource.RLIMIT_CPU, (spent + 10, spent + 10))
try:
    print(len(read_prose(text, "html").text))
except BadDocumentError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=HOSTILE[name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-300:]


def test_long_lists_keep_their_numbers(tmp_path: Path) -> None:
    (row,) = ingest(tmp_path, {"a.html": "<ol>" + "".join(f"<li>i{n}</li>" for n in range(1, 301)) + "</ol>"}).rows
    assert row["text"].splitlines() == [f"{n}. i{n}" for n in range(1, 301)]
