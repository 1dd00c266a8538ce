"""Texts on cards: their document, marks, code, and what the judge said; of one tenant alone."""

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.drawing import Text
from darklode.pipeline.report.passages import EXCERPT, Passages, plain
from darklode.schemas.tables import TABLES
from helpers.report_runs import opened
from helpers.runs import put

CODE = "Intro.\n```sh\nkey rotate --now\n```\n- one\n- two\n"
START = CODE.index("key")


@pytest.fixture
def coded(run: Run) -> Run:
    """A chunk that begins within code, in two tenants; the judge looked at one of them."""
    document = {"doc_id": "guide.md", "source": "t", "content_hash": "h", "url": None}
    chunk = {"chunk_id": "c", "doc_id": "guide.md", "position": 1, "start": START, "end": len(CODE)}
    chunk |= {"text": CODE[START:], "heading": "Keys", "content_hash": "h"}
    rows = {
        "documents": [document | {"tenant": name, "title": name.upper(), "text": CODE} for name in ("a", "b")],
        "chunks": [chunk | {"tenant": name, "title": name.upper()} for name in ("a", "b")],
        "verdicts": [
            {"tenant": "a", "query_id": "q", "chunk_id": "c", "judge_id": "j", "relevant": True, "probability": 0.75}
        ],
    }
    for name, some in rows.items():
        put(run, name, pa.Table.from_pylist(some, schema=TABLES[name].schema))
    return run


def text(run: Run, tenant: str, chunk: str = "c", note: str = "") -> Text:
    with opened(run) as source:
        key = (tenant, "q", chunk)
        return Passages(source, [key]).text(key, "rotating a key", CODE[START:], "positive", note)


def test_a_text_names_its_document_and_keeps_its_lines(coded: Run) -> None:
    found = text(coded, "a")
    assert ["".join(piece.text for piece in name) for name in found.heading_pieces] == ["A", "Keys"]
    assert (found.document, found.note, found.full_blocks) == ("guide.md", "probability 0.750", [])
    assert [(block.kind, len(block.lines)) for block in found.clipped] == [("fixed", 1), ("bullet", 1), ("bullet", 1)]
    marked = [piece.text for block in found.clipped for line in block.lines for piece in line if piece.marked]
    assert marked == ["key", "rotate"]


def test_a_judge_of_one_tenant_says_nothing_of_another(coded: Run) -> None:
    assert (text(coded, "b").note, text(coded, "b").document) == ("", "guide.md")


def test_a_note_stands_in_place_of_the_probability(coded: Run) -> None:
    assert text(coded, "a", note="in doubt").note == "in doubt"


def test_a_text_whose_chunk_is_gone_has_no_name(coded: Run) -> None:
    found = text(coded, "a", "gone")
    assert (found.document, list(found.heading_pieces), found.note) == ("", [], "")


def test_a_long_text_is_whole_on_demand() -> None:
    long = plain("needle\n" + "hay " * EXCERPT)
    assert len(long.full_blocks[0].lines) == 2
    assert plain("short").full_blocks == []
