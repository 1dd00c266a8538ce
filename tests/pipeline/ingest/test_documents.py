"""Documents from folders of Markdown, HTML and text."""

import gzip
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import InputError, TooManyRejects
from darklode.pipeline.ingest.files import source_fingerprint
from helpers.ingesting import Ingested, documents_of
from helpers.runs import SHARED

PAGE = """<!doctype html><html><head><title> The  page </title><meta name="url" content="https://x.example/p">
<meta name="tenant" content="acme"><style>p {}</style></head><body><header>top</header><nav>menu</nav>
<main><h1>Big</h1><p>Some <b>bold</b> words.</p><script>evil()</script><form>ask</form>
<pre><code>a = 1</code></pre></main><footer>bottom</footer></body></html>"""


def folder(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root / "docs"


def ingest(root: Path, files: dict[str, str | bytes], **settings: object) -> Ingested:
    return documents_of(folder(root, files), root / "run", **settings)


def test_files_become_documents_in_the_order_of_their_paths(tmp_path: Path) -> None:
    got = ingest(tmp_path, {"b/z.txt": "plain\r\ntext", "a.md": "# One\n\nbody", "b/c.markdown": "two", "d.rst": "rst"})
    assert [(row["doc_id"], row["title"], row["text"]) for row in got.rows] == [
        ("a.md", "One", "# One\n\nbody"),
        ("b/c.markdown", None, "two"),
        ("b/z.txt", None, "plain\ntext"),
        ("d.rst", None, "rst"),
    ]
    assert {row["tenant"] for row in got.rows} == {"default"}
    assert [row["source"] for row in got.rows] == [row["doc_id"] for row in got.rows]
    assert got.rejects == []


def test_front_matter_gives_title_url_tenant_and_id(tmp_path: Path) -> None:
    head = "---\ntitle: 2024-01-01\nurl: https://x.example\ntenant: acme\ndoc_id: 7\ntags: [a, b]\n---\n\n# Other\n"
    (row,) = ingest(tmp_path, {"a.md": head}).rows
    assert (row["doc_id"], row["title"], row["url"], row["tenant"]) == ("7", "2024-01-01", "https://x.example", "acme")
    assert row["text"] == "# Other"


def test_settings_map_front_matter_keys(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"a.md": "---\nslug: start\nname: Begin\n---\ntext", "b.md": "no front matter"}
    got = ingest(tmp_path, files, documents={"columns": {"doc_id": "slug", "title": "name"}})
    assert [(row["doc_id"], row["title"]) for row in got.rows] == [("start", "Begin"), ("b.md", None)]


def test_a_mapped_key_that_no_document_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no column 'titel'.*did you mean 'title'"):
        ingest(tmp_path, {"a.md": "---\ntitle: A\n---\ntext"}, documents={"columns": {"title": "titel"}})


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


def test_hidden_files_and_links_that_leave_are_skipped(tmp_path: Path) -> None:
    docs = folder(tmp_path, {"a.md": "a", ".git/x.md": "x", ".hidden.md": "h"})
    (tmp_path / "outside.md").write_text("secret")
    (docs / "leaves.md").symlink_to(tmp_path / "outside.md")
    (docs / "broken.md").symlink_to(tmp_path / "nothing.md")
    (docs / "stays.md").symlink_to(docs / "a.md")
    (docs / "loop").symlink_to(docs)
    got = documents_of(docs, tmp_path / "run")
    assert [row["doc_id"] for row in got.rows] == ["a.md", "stays.md"]


def test_other_files_are_rejected_but_do_not_count(tmp_path: Path) -> None:
    others: dict[str, str | bytes] = {f"{n}.png": b"\x89PNG" for n in range(9)}
    got = ingest(tmp_path, {"a.md": "a", "q.csv": "text\nx", "l.jsonl": "{}", **others}, max_reject_share=0)
    assert [row["doc_id"] for row in got.rows] == ["a.md"]
    assert got.funnel.dropped == {"not a document format": 11}


def test_bytes_that_are_no_text_are_rejected(tmp_path: Path) -> None:
    bad: dict[str, str | bytes] = {"a.md": b"caf\xe9", "b.txt": b"a\0b", "c.txt": "  \n", "d.html": "", "e.md": "fine"}
    got = ingest(tmp_path, bad)
    assert [(row["file"], row["reason"]) for row in sorted(got.rejects, key=lambda row: str(row["file"]))] == [
        ("a.md", "not UTF-8"),
        ("b.txt", "NUL byte"),
        ("c.txt", "empty text"),
        ("d.html", "empty text"),
    ]


def test_byte_order_marks_and_gzip(tmp_path: Path) -> None:
    got = ingest(
        tmp_path,
        {
            "a.md": b"\xef\xbb\xbf# Caf\xc3\xa9",
            "b.txt": "Ünïcode".encode("utf-16"),
            "c.txt": b"\xfe\xff" + "groß".encode("utf-16-be"),
            "d.md.gz": gzip.compress(b"# Zipped"),
        },
    )
    assert [(row["title"], row["text"]) for row in got.rows] == [
        ("Café", "# Café"),
        (None, "Ünïcode"),
        (None, "groß"),
        ("Zipped", "# Zipped"),
    ]


@pytest.mark.parametrize("data", [gzip.compress(b"words " * 999)[:-9], b"not gzip"], ids=["cut", "other"])
def test_a_damaged_gzip_is_an_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match=r"a\.md\.gz is not a whole gzip file"):
        ingest(tmp_path, {"a.md.gz": data})


def test_a_long_file_is_rejected_unread(tmp_path: Path) -> None:
    got = ingest(tmp_path, {"long.md": "x" * 101, "short.md": "x" * 100}, max_row_bytes=100)
    assert [row["doc_id"] for row in got.rows] == ["short.md"]
    assert got.reasons == [("row longer than 100 bytes", None)]


def test_the_first_of_two_documents_with_one_id_stays(tmp_path: Path) -> None:
    same = "---\nid: x\n---\n"
    other = "---\nid: x\ntenant: other\n---\n"
    got = ingest(tmp_path, {"a.md": same + "first", "b.md": same + "second", "c.md": other + "third"})
    assert [row["text"] for row in got.rows] == ["first", "third"]
    (reject,) = got.rejects
    assert (reject["reason"], reject["id"], reject["represented_by"]) == ("duplicate id", "x", "x")
    assert reject["file"] == "b.md"


@pytest.mark.parametrize("files", [{}, {"a.png": b"x"}, {"a.md": ""}, {"a.md": "", "b.txt": " "}])
def test_nothing_to_read_is_an_error(tmp_path: Path, files: dict[str, str | bytes]) -> None:
    (tmp_path / "docs").mkdir()
    with pytest.raises(InputError, match="docs"):
        ingest(tmp_path, files)


def test_too_many_rejects_name_reasons_and_an_example(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"a.md": "a", "b.md": "b", "c.md": b"\xff", "d.md": ""}
    with pytest.raises(TooManyRejects, match=r"2 of 4 rows .*not UTF-8: 1, such as c\.md.*max_reject_share"):
        ingest(tmp_path, files, max_reject_share=0.2)


def test_one_file_alone(tmp_path: Path) -> None:
    docs = folder(tmp_path, {"a.md": "# A"})
    (row,) = documents_of(docs / "a.md", tmp_path / "run").rows
    assert (row["doc_id"], row["title"]) == ("a.md", "A")


def test_the_fingerprint_follows_names_sizes_and_times(tmp_path: Path) -> None:
    docs = folder(tmp_path, {"a.md": "a"})
    first = source_fingerprint(str(docs))
    assert source_fingerprint(str(docs)) == first
    (docs / "b.md").write_text("b")
    second = source_fingerprint(str(docs))
    (docs / "b.md").rename(docs / "c.md")
    third = source_fingerprint(str(docs))
    (docs / "c.md").write_text("c")
    assert len({first, second, third, source_fingerprint(str(docs))}) == 4
    with pytest.raises(InputError, match="does not exist"):
        source_fingerprint(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no files"):
        source_fingerprint(str(tmp_path / "empty"))


@pytest.mark.skipif(not (SHARED / "collections/opensearch-docs/raw").is_dir(), reason="the collection is not here")
def test_a_real_documentation(tmp_path: Path) -> None:
    got = documents_of(SHARED / "collections/opensearch-docs/raw", tmp_path / "run")
    print(f"{got.run.manifests()['ingest_documents'].seconds} s")
    assert got.funnel.rows_in == 1748
    assert len(got.rejects) <= 5
    assert sum(row["title"] is None for row in got.rows) <= 5
    assert all(not row["text"].startswith("---\n") for row in got.rows)
