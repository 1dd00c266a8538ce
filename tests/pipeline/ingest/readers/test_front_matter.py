"""Front matter: what is a head, what is text, and what is neither."""

import pytest

from darklode.pipeline.ingest.readers.front_matter import BadHeadError, front_matter


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
        ("---\n" + "a: {" * 10_000 + "\n---\nx", "front matter is nested too deeply"),
        ("---\na: " + "x" * 70_000 + "\n---\nx", "front matter is longer than 65536 characters"),
    ],
)
def test_what_looks_meant_and_cannot_be_read(text: str, reason: str) -> None:
    with pytest.raises(BadHeadError, match=f"^{reason}$"):
        front_matter(text)


def test_hostile_values_are_texts_or_nothing() -> None:
    bomb = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12))
    head, _ = front_matter(f"---\n{bomb}<<: *a3\nlong: {'9' * 5000}\n---\nx")
    assert head["long"] == "9" * 5000
    assert {value for key, value in head.items() if key != "long"} == {None}
