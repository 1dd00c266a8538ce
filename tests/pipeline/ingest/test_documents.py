"""Documents from folders of Markdown, HTML and text."""

import gzip
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import source_fingerprint
from helpers.ingesting import documents_of, folder, ingest
from helpers.runs import SHARED


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
