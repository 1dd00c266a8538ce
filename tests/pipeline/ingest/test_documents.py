"""Documents from folders of Markdown, HTML and text."""

import gzip
import os
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
    os.mkfifo(docs / "pipe.md")
    got = documents_of(docs, tmp_path / "run", max_reject_share=0)
    assert [row["doc_id"] for row in got.rows] == ["a.md", "stays.md"]
    assert sorted((row["file"], row["reason"]) for row in got.rejects) == [
        ("broken.md", "broken link"),
        ("leaves.md", "link out of the folder"),
        ("loop", "link to a folder"),
        ("pipe.md", "not a regular file"),
    ]


def test_the_folder_of_a_run_is_not_read(tmp_path: Path) -> None:
    docs = folder(tmp_path, {"a.md": "a", "run/README.md": "# Card", "run/inputs.json": "{}", "run/settings.yaml": ""})
    before = source_fingerprint(str(docs))
    (docs / "run" / "report.html").write_text("<p>report</p>")
    assert source_fingerprint(str(docs)) == before
    got = documents_of(docs, tmp_path / "out", max_reject_share=0)
    assert [row["doc_id"] for row in got.rows] == ["a.md"]
    assert [(row["file"], row["reason"]) for row in got.rejects] == [("run", "folder of a run")]


def test_a_name_that_is_no_utf8_is_escaped(tmp_path: Path) -> None:
    docs = folder(tmp_path, {"a.md": "a"})
    (Path(os.fsdecode(os.fsencode(docs) + b"/caf\xe9.md"))).write_text("b")
    got = documents_of(docs, tmp_path / "run")
    assert [(row["doc_id"], row["text"]) for row in got.rows] == [("a.md", "a"), (r"caf\xe9.md", "b")]


@pytest.mark.parametrize("key", ["tenant", "Tenant", "TENANT"])
@pytest.mark.parametrize("ending", ["md", "html"])
def test_a_tenant_is_a_tenant_however_it_is_written(tmp_path: Path, key: str, ending: str) -> None:
    head = {"md": f"\n---\n{key}: acme\ndate: 2026-13-45\n---\nx", "html": f"<meta name={key} content=acme>x"}
    (row,) = ingest(tmp_path, {f"a.{ending}": head[ending]}).rows
    assert row["tenant"] == "acme"


@pytest.mark.parametrize("value", ["", "~", "[acme]", "{name: acme}"])
def test_a_tenant_that_cannot_be_read_is_not_everybodys(tmp_path: Path, value: str) -> None:
    got = ingest(tmp_path, {"a.md": f"---\ntenant: {value}\n---\nx", "b.md": "fine"})
    assert [(row["file"], row["reason"]) for row in got.rejects] == [
        ("a.md", "front matter: tenant is not a plain value")
    ]


def test_rows_that_name_no_tenant_are_rejected_where_they_have_to(tmp_path: Path) -> None:
    got = ingest(tmp_path, {"a.md": "---\ntenant: acme\n---\nx", "b.md": "y"}, require_tenant=True)
    assert [(row["tenant"], row["doc_id"]) for row in got.rows] == [("acme", "a.md")]
    assert [(row["file"], row["reason"]) for row in got.rejects] == [("b.md", "missing tenant")]


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
def test_a_damaged_gzip_is_rejected_and_the_other_documents_are_read(tmp_path: Path, data: bytes) -> None:
    got = ingest(tmp_path, {"a.md.gz": data, "b.md": "b", "c.md": b"\xff\xfe\x00\xd8", "d.md": "d"})
    assert [row["doc_id"] for row in got.rows] == ["b.md", "d.md"]
    assert [row["file"] for row in got.rejects] == ["a.md.gz", "c.md"]
    assert "is a damaged gzip file" in got.rejects[0]["reason"]
    assert "begins as UTF-16 but is not" in got.rejects[1]["reason"]


def test_a_damaged_gzip_alone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a damaged gzip file"):
        ingest(tmp_path, {"a.md.gz": b"not gzip"})


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


def test_the_fingerprint_follows_names_and_contents(tmp_path: Path) -> None:
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
    with pytest.raises(InputError, match="contains no files"):
        source_fingerprint(str(tmp_path / "empty"))


@pytest.mark.skipif(not (SHARED / "collections/opensearch-docs/raw").is_dir(), reason="the collection is not here")
def test_a_real_documentation(tmp_path: Path) -> None:
    got = documents_of(SHARED / "collections/opensearch-docs/raw", tmp_path / "run")
    print(f"{got.run.manifests()['ingest_documents'].seconds} s")
    assert got.funnel.rows_in == 1748
    assert len(got.rejects) <= 5
    assert sum(row["title"] is None for row in got.rows) <= 5
    assert all(not row["text"].startswith("---\n") for row in got.rows)


def test_topics_come_in_by_name_or_as_the_settings_name_them(tmp_path: Path) -> None:
    got = ingest(tmp_path / "head", {"a.md": "---\ntopic: pumps\n---\na", "b.md": "b"})
    assert [row["topic"] for row in got.rows] == ["pumps", None]
    rows = '{"id": "1", "text": "x", "kind": "pumps"}\n{"id": "2", "text": "x", "kind": ""}\n'
    (tmp_path / "rows.jsonl").write_text(rows)
    mapped = documents_of(tmp_path / "rows.jsonl", tmp_path / "run", documents={"columns": {"topic": "kind"}})
    assert [row["topic"] for row in mapped.rows] == ["pumps", None]
    assert len({row["content_hash"] for row in mapped.rows}) == 1
