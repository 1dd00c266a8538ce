"""Words by row, whatever the pieces were that they came in."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.index.source import TEXT_SCHEMA
from darklode.pipeline.serve import mapped_texts
from darklode.pipeline.serve.mapped_texts import IndexedTexts


def rows(first: int, last: int) -> pa.Table:
    """Texts by number; every third has no title."""
    named = [
        {"text_id": f"t{n}", "doc_id": f"d{n // 2}", "title": None if n % 3 == 0 else f"title {n}", "heading": None}
        | {"text": f"text ünd {n}", "content_hash": f"{n:032x}"}
        for n in range(first, last)
    ]
    return pa.Table.from_pylist(named, schema=TEXT_SCHEMA)


def test_a_text_is_looked_up_by_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_texts, "ROWS_PER_BATCH", 4)
    found = IndexedTexts([rows(0, 7), rows(7, 7), rows(7, 20)], tmp_path / "texts.arrow")
    assert len(found) == 20
    assert found.ids.to_pylist() == [f"t{n}" for n in range(20)]
    assert found.hashes()[19].as_py() == f"{19:032x}"
    wanted = [19, 0, 7, 7, 3, 12]
    plain = rows(0, 20).drop_columns("content_hash").to_pylist()
    assert found.text_rows(np.array(wanted)) == [plain[n] for n in wanted]
    assert found.text_rows(np.empty(0, np.int64)) == []
    assert [text for _, part in found.iterate_hashes() for text in part.to_pylist()][:2] == [
        "text ünd 0",
        "title 1\ntext ünd 1",
    ]
