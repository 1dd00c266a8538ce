"""Chunks: true offsets, stable ids, the headings above them, and what is turned away."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from darklode.pipeline.base.artifacts import Manifest, Output, Run, Stage, Tables
from darklode.pipeline.base.sharding import here as at_home
from darklode.pipeline.prepare.chunk import CHUNK, chunk, spans, splitter_of
from darklode.schemas.settings import ChunkSettings
from darklode.schemas.tables import TABLES
from helpers.elsewhere import Elsewhere
from helpers.runs import documents, execute, put, read

Rows = list[dict[str, Any]]
PIECES = ["word", "a", "b", " ", ". ", "\n", "\n\n", "# x\n", "```\n", "é", "😀", "\u00a0", "-"]
MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


def cut(run: Run, rows: pa.Table, **settings: int) -> Manifest:
    put(run, "documents", rows)
    return execute(run, CHUNK, lambda tables, output: chunk(tables, output, ChunkSettings(**settings)))


def one(run: Run, text: str, title: str | None = None, **settings: int) -> Rows:
    rows = documents(doc_id=["d"], text=[text])
    position = rows.schema.get_field_index("title")
    cut(run, rows.set_column(position, rows.schema.field("title"), pa.array([title], pa.string())), **settings)
    return read(run, "chunks")


def places_of(text: str, size: int, overlap: int = 0) -> list[tuple[int, int]]:
    return list(spans(text, splitter_of(size, overlap), ChunkSettings(size=size, overlap=overlap)))


def rejects(run: Run) -> Rows:
    return read(run, "rejects") if "rejects" in run.parts() else []


@settings(max_examples=400, deadline=None)
@given(text=MARKDOWN, size=st.integers(1, 40))
@example("a a a a a a", 3)
@example("\n\n  same.\n\nsame. same.\n\nsame", 5)
def test_offsets_are_true_and_nothing_but_white_space_is_left_out(text: str, size: int) -> None:
    places = places_of(text, size)
    end = 0
    for start, stop in places:
        assert text[end:start].strip() == ""
        assert 0 < stop - start <= size
        assert text[start:stop].strip() in (text[start:stop], "")
        end = stop
    assert text[end:].strip() == ""


@settings(max_examples=400, deadline=None)
@given(text=MARKDOWN, size=st.integers(2, 40), data=st.data())
def test_overlapping_pieces_lie_where_they_are_found(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(1, size - 1))
    places = places_of(text, size, overlap)
    assert all(0 <= start < stop <= len(text) and stop - start <= size for start, stop in places)
    assert [start for start, _ in places] == sorted(start for start, _ in places)


def test_chunks_are_their_documents_characters(run: Run) -> None:
    text = "# Title\n\n" + "\n\n".join(f"Sentence {n} is here. And this one, number {n}, follows." for n in range(40))
    rows = one(run, text, size=200)
    assert [text[row["start"] : row["end"]] for row in rows] == [row["text"] for row in rows]
    assert [row["position"] for row in rows] == list(range(len(rows)))
    assert all(len(row["text"]) <= 200 for row in rows)
    assert len(rows) > 10


def test_sentences_end_before_lines_are_torn(run: Run) -> None:
    assert [row["text"] for row in one(run, "First one. Second one. Third", size=12)] == [
        "First one.",
        "Second one.",
        "Third",
    ]


def test_equal_texts_of_a_document_are_told_apart(run: Run) -> None:
    rows = one(run, "same text\n\nother\n\nsame text\n\nsame text", size=12)
    first = rows[0]["chunk_id"]
    assert first.startswith("d#")
    assert len(first) == 14
    assert [row["chunk_id"] for row in rows] == [first, rows[1]["chunk_id"], f"{first}.2", f"{first}.3"]


def test_ids_are_stable_while_other_texts_change(run: Run) -> None:
    before = {row["text"]: row["chunk_id"] for row in one(run, "alpha one\n\nbeta two\n\ngamma", size=12)}
    after = {row["text"]: row["chunk_id"] for row in one(run, "new start\n\nalpha one\n\ngamma", size=12)}
    assert after["alpha one"] == before["alpha one"]
    assert after["gamma"] == before["gamma"]


VAT = """## Invoices

An invoice is sent on the first working day of each month.

### VAT

VAT is shown on each line of the invoice. It is due in your country.
"""


def test_a_heading_belongs_to_the_chunk_that_follows_it(run: Run) -> None:
    rows = one(run, VAT, size=80)
    assert [row["text"] for row in rows] == [
        "## Invoices\n\nAn invoice is sent on the first working day of each month.",
        "### VAT\n\nVAT is shown on each line of the invoice. It is due in your country.",
    ]
    assert [row["heading"] for row in rows] == [None, "Invoices"]


def test_a_chunk_that_is_too_long_with_its_heading_is_cut(run: Run) -> None:
    rows = one(run, VAT, size=70)
    assert [row["text"] for row in rows] == [
        "## Invoices\n\nAn invoice is sent on the first",
        "working day of each month.",
        "### VAT\n\nVAT is shown on each line of the invoice.",
        "It is due in your country.",
    ]
    assert [VAT[row["start"] : row["end"]] for row in rows] == [row["text"] for row in rows]


def test_headings_in_a_row_stay_together(run: Run) -> None:
    rows = one(run, "Some text here.\n\n# A\n\n## B\n\nThe text below.\n\n## C", size=28)
    assert [row["text"] for row in rows] == ["Some text here.", "# A\n\n## B\n\nThe text below.", "## C"]


def test_a_heading_longer_than_half_a_chunk_is_one(run: Run) -> None:
    rows = one(run, "text\n\n# A heading of many words\n\nThe text below it.", size=30)
    assert [row["text"] for row in rows] == ["text", "# A heading of many words", "The text below it."]


@settings(max_examples=1000, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(["\n\n# One\n\n", "\n## Two\n", "word ", "A sentence. ", "\n\n", "- item\n"]), max_size=40
    ),
    size=st.integers(24, 60),
)
@example(["\n\n# One\n\n", "\n## Two\n", "word ", "word ", "- item\n", "- item\n"], 34)
def test_no_chunk_with_text_ends_in_a_heading_unless_nothing_follows(parts: list[str], size: int) -> None:
    text = "".join(parts)
    places = places_of(text, size)
    for start, end in places:
        word = re.search(r"word|sentence|item", text[end:])
        if word and text[start:end].split("\n")[-1] in ("# One", "## Two"):
            assert not re.search(r"word|sentence|item", text[start:end])
            assert end + word.start() - start > size // 2, text[start:end]


def test_headings_above_a_chunk(run: Run) -> None:
    text = """# The title

intro text of the document

## Install ##

with apt, as root, in one go

```bash
# not this
```

### On `Mac`

with brew, as yourself, also

## Use

run it and see what it prints

# Other part

the end of all these words
"""
    rows = one(run, text, title="The title", size=31)
    assert [(row["text"].replace("\n", "|"), row["heading"]) for row in rows] == [
        ("# The title||intro text of", None),
        ("the document", None),
        ("## Install ##||with apt, as", None),
        ("root, in one go", "Install"),
        ("```bash|# not this|```", "Install"),
        ("### On `Mac`||with brew, as", "Install"),
        ("yourself, also", "Install › On `Mac`"),
        ("## Use||run it and see", None),
        ("what it prints", "Use"),
        ("# Other part||the end of all", None),
        ("these words", "Other part"),
    ]


def test_a_first_heading_other_than_the_title_is_kept(run: Run) -> None:
    rows = one(run, "# Part\n\nfirst words\n\n## Sub\n\nlast words", title="Title", size=14)
    assert [row["heading"] for row in rows] == [None, "Part", "Part", "Part › Sub"]


@pytest.mark.parametrize("fence", ["````\n```\n# no\n````", "~~~\n# no\n~~~", "    # no", "#no", "####### no", "# #"])
def test_what_is_no_heading(run: Run, fence: str) -> None:
    rows = one(run, f"{fence}\n\n{'last words. ' * 5}", size=60)
    assert rows[-1]["heading"] is None


def test_a_line_of_inline_code_opens_no_fence(run: Run) -> None:
    rows = one(run, f"```npm install acme```\n\n# Next\n\n{'last words. ' * 5}", size=40)
    assert rows[-1]["heading"] == "Next"


def test_the_content_hash_holds_title_and_heading(run: Run) -> None:
    hashes = [one(run, text, title=title)[0]["content_hash"] for text, title in [("a", None), ("a", "t"), ("b", None)]]
    hashes.append(one(run, "# h\n\na", size=4)[1]["content_hash"])
    assert len(set(hashes)) == 4
    assert {len(value) for value in hashes} == {32}


def test_documents_without_text_and_chunks_without_words_are_turned_away(run: Run) -> None:
    manifest = cut(run, documents(doc_id=["a", "b"], text=[" \n\t", "one word\n\n---------\n\ntwo"]), size=12)
    rows = read(run, "chunks")
    assert [(row["text"], row["position"]) for row in rows] == [("one word", 0), ("two", 1)]
    assert [(row["table"], row["id"], row["reason"], row["stage"]) for row in rejects(run)] == [
        ("documents", "a", "no text", "chunk"),
        ("chunks", "b", "no words", "chunk"),
    ]
    (step,) = manifest.funnel
    assert (step.rows_in, step.rows_out, step.dropped) == (2, 2, {"no text": 1})


def test_tenants_may_use_the_same_ids(run: Run) -> None:
    rows = documents(doc_id=["d", "d"], text=["same", "same"])
    cut(run, rows.set_column(0, rows.schema.field("tenant"), pa.array(["a", "b"])))
    (first, second) = read(run, "chunks")
    assert first["chunk_id"] == second["chunk_id"]
    assert (first["tenant"], second["tenant"], second["position"]) == ("a", "b", 0)


def test_unchanged_parts_are_not_cut_again(run: Run) -> None:
    stage = Stage("given", 1, (), ("documents",))

    def give(*texts: str) -> None:
        def work(_tables: Tables, output: Output) -> None:
            for text in texts:
                output.write("documents", documents(doc_id=[text], text=[f"{text} body\n\n--------------"]))

        run.execute(run.plan(stage, {}), work)

    def go() -> Manifest:
        return execute(run, CHUNK, lambda tables, output: chunk(tables, output, ChunkSettings(size=15)))

    give("a", "b", "c")
    before = go()
    give("new", "a", "changed", "c")
    after = go()
    assert len(before.units.keys() & after.units.keys()) == 2
    assert [row["doc_id"] for row in read(run, "chunks")] == ["new", "a", "changed", "c"]
    assert Counter(row["reason"] for row in rejects(run)) == {"no words": 4}
    assert (after.funnel[0].rows_in, after.funnel[0].rows_out) == (4, 4)


def test_an_overlap_as_long_as_the_chunk_is_refused() -> None:
    with pytest.raises(ValidationError, match="overlap 10 must be smaller than size 10"):
        ChunkSettings(size=10, overlap=10)


def test_no_documents_give_an_empty_table(run: Run) -> None:
    cut(run, TABLES["documents"].empty())
    assert read(run, "chunks") == []


def test_parts_cut_elsewhere_are_the_same(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["one. two", " ", "three\n\n--------\n\nfour", "five six seven"]
    monkeypatch.setattr("darklode.pipeline.prepare.chunk.SHARD_BYTES", 5000)
    given = Stage("given_documents", 1, (), ("documents",))
    here, elsewhere = Run(str(tmp_path / "here")), Elsewhere(run.store, 2)

    def write(_tables: Tables, output: Output) -> None:
        for number, text in enumerate([*texts, texts[0]]):
            output.write("documents", documents(doc_id=[f"d{number % 4}"], text=[text]))

    for where, spread in ((run, elsewhere), (here, at_home)):
        where.execute(where.plan(given, {}), write)
        execute(
            where, CHUNK, lambda tables, output, spread=spread: chunk(tables, output, ChunkSettings(size=9), spread)
        )
    assert run.parts() == here.parts()
    assert [row["text"].strip() for row in read(run, "chunks")] == [
        "one. two",
        "three",
        "four",
        "five six",
        "seven",
        "one. two",
    ]
    assert [row["reason"] for row in read(run, "rejects")] == ["no text", "no words"]
    assert len(elsewhere.names) > 1
    assert not run.store.sizes("progress/chunk")
