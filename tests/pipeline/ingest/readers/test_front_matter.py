"""Front matter: what is a head, what is text, and what is neither."""

from pathlib import Path

import pytest

from darklode.pipeline.ingest.readers.front_matter import BadHeadError, front_matter
from helpers.ingesting import ingest

HEAD_OF_TOML = {"tenant": "acme", "id": "7", "ok": "true", "w": "1.50"}
HEAD_OF_TABLES = {"day": "2024-01-01", "list": None, "table": None}
HEAD_OF_JSON = {"tenant": "acme", "n": "1.50", "x": None, "l": None}


@pytest.mark.parametrize(
    ("text", "head", "body"),
    [
        ("---\ntitle: T\n---\nbody", {"title": "T"}, "body"),
        ("\n\n---\ntitle: T\n---\nbody", {"title": "T"}, "body"),
        ("---\ndate: 2026-13-45\nn: 007\nyes: true\n---\nx", {"date": "2026-13-45", "n": "007", "yes": "true"}, "x"),
        ("---\na: ~\nb:\nc: [x]\nd: {e: f}\n---\nx", {"a": None, "b": None, "c": None, "d": None}, "x"),
        ("---\n---\nbody", {}, "body"),
        ("---\n\nA rule above, one below\n\n---\n\nmore", {}, None),
        ("--- \nnever closed", {}, None),
        ("---\ntitle: T\n...\nbody", {"title": "T"}, "body"),
        ('+++\n# who\ntenant = "acme"\nid = 7\nok = true\nw = 1.50\n+++\nbody', HEAD_OF_TOML, "body"),
        ("+++\nday = 2024-01-01\nlist = [1]\n[table]\nx = 1\n+++\nx", HEAD_OF_TABLES, "x"),
        ("+++\nsome text\n+++\nmore", {}, None),
        ("+++\nnever closed", {}, None),
        ("++++\na = 1\n++++\nmore", {}, None),
        ('---toml\ntenant = "a"\n---\nx', {"tenant": "a"}, "x"),
        ('---json\n{"tenant": "a"}\n---\nx', {"tenant": "a"}, "x"),
        ("---YML\ntenant: a\n---\nx", {"tenant": "a"}, "x"),
        ('{"tenant": "acme", "n": 1.50, "x": null, "l": [1]}\n\n# T', HEAD_OF_JSON, "# T"),
        ('\n{\n  "tenant": "a"\n}', {"tenant": "a"}, ""),
        (';;;\n"tenant": "a",\n"n": 1,\n;;;\nx', {"tenant": "a", "n": "1"}, "x"),
        ('{"a": 1} is an object', {}, None),
        ("{% raw %}{}{% endraw %}", {}, None),
        ("{}\ntext", {}, None),
        ("---\n- a list\n---\nmore", {}, None),
        ("no rule", {}, None),
        ("", {}, None),
    ],
)
def test_heads_and_texts(text: str, head: dict[str, str | None], body: str | None) -> None:
    assert front_matter(text) == (head, text if body is None else body)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("---\ntenant: acme\nnever closed", "front matter is never closed"),
        ("---\ntitle: [open\n---\nx", "broken front matter"),
        ("---\n? {a: 1}\n: x\n---\nx", "broken front matter"),
        ("---\n- tenant: acme\n---\nx", "front matter is a list"),
        ('---\n"tenant": acme\nnever closed', "front matter is never closed"),
        ("---\ntenant: a\ntenant: b\n---\nx", "front matter repeats a key"),
        ('+++\n# who\n\ntenant = "acme"\nnever closed', "front matter is never closed"),
        ("+++\ntenant = acme\n+++\nx", "broken front matter"),
        ('+++\na = "b"\na = "c"\n+++\nx', "broken front matter"),
        (f"+++\na = {'9' * 5000}\n+++\nx", "broken front matter"),
        (f"+++\na = {'[' * 60_000}\n+++\nx", "front matter is nested too deeply"),
        (f"+++\n{'a.' * 30_000}a = 1\n+++\nx", "front matter is nested too deeply"),
        ("+++\n[[" + "a." * 15_000 + "a]]\n" + "k = 1\n" * 3_000 + "+++\nx", "front matter is nested too deeply"),
        (f"+++\na = '{'x' * 70_000}'\n+++\nx", "front matter is longer than 65536 characters"),
        ("---js\n{tenant: 'acme'}\n---\nx", "front matter in js cannot be read"),
        ('{"tenant": "acme", }\n\n# T', "broken front matter"),
        ('{"tenant": "a", "tenant": "b"}\n\n# T', "front matter repeats a key"),
        ('{"a": ' * 10_000, "front matter is nested too deeply"),
        ('{"a": "' + "x" * 70_000 + '"}\nx', "front matter is longer than 65536 characters"),
        (';;;\n"tenant": acme\n;;;\nx', "broken front matter"),
        ("---\n" + "a: {" * 10_000 + "\n---\nx", "front matter is nested too deeply"),
        ("---\na: " + "x" * 70_000 + "\n---\nx", "front matter is longer than 65536 characters"),
    ],
)
def test_what_looks_meant_and_cannot_be_read(text: str, reason: str) -> None:
    with pytest.raises(BadHeadError, match=f"^{reason}$"):
        front_matter(text)


@pytest.mark.parametrize("name", ["a.md", "a.html"])
@pytest.mark.parametrize(
    "head",
    [
        "---\ntenant: acme\ntitle: T\n---\n",
        "+++\ntenant = 'acme'\ntitle = 'T'\n+++\n",
        '{"tenant": "acme", "title": "T"}\n',
        "---toml\ntenant = 'acme'\ntitle = 'T'\n---\n",
    ],
)
def test_a_page_belongs_to_the_tenant_of_its_head(tmp_path: Path, name: str, head: str) -> None:
    (row,) = ingest(tmp_path, {name: f"{head}\n<p>Text.</p>\n"}).rows
    assert (row["tenant"], row["title"]) == ("acme", "T")
    assert "tenant" not in row["text"]


def test_a_head_that_cannot_be_read_leads_to_no_tenant(tmp_path: Path) -> None:
    heads = {
        "list.md": "+++\ntenant = ['acme']\n+++\nx",
        "null.md": '{"tenant": null}\nx',
        "broken.md": "+++\ntenant = acme\n+++\nx",
        "meta.html": "---\ntenant:\n---\n<meta name=tenant content=beta><p>x",
        "fine.md": "x",
    }
    got = ingest(tmp_path, heads)
    assert [row["doc_id"] for row in got.rows] == ["fine.md"]
    assert {row["file"]: row["reason"] for row in got.rejects} == {
        "broken.md": "broken front matter",
        **dict.fromkeys(["list.md", "meta.html", "null.md"], "front matter: tenant is not a plain value"),
    }


def test_hostile_values_are_texts_or_nothing() -> None:
    bomb = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12))
    head, _ = front_matter(f"---\n{bomb}<<: *a3\nlong: {'9' * 5000}\n---\nx")
    assert head["long"] == "9" * 5000
    assert {value for key, value in head.items() if key != "long"} == {None}
