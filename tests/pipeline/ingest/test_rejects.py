"""Rows that are turned away: shown, masked, counted, and too many of them."""

import json
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import TooManyRejects
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.schemas.settings import IngestSettings
from helpers.ingesting import documents_of, ingest, lines, write
from helpers.log_ingesting import FULL, logs_of


def test_the_share_of_rejects_is_bounded(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", lines({"id": 1, "text": "a"}, "x", "y", {"id": 2, "text": "b"}, {"id": 3}))
    with pytest.raises(TooManyRejects, match=r"3 of 5 rows.*more than 59%.*JSON syntax error: 2, such as d\.jsonl:2"):
        documents_of(path, tmp_path / "run", max_reject_share=0.59)
    assert len(documents_of(path, tmp_path / "run", max_reject_share=0.6).rows) == 2


def test_progress_reaches_its_total(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", lines(*({"id": n, "text": "word " * 500} for n in range(1000))))
    run, told = Run(str(tmp_path / "run")), []
    work = lambda _tables, output: ingest_documents(str(path), output, IngestSettings())  # noqa: E731
    run.execute(run.plan(INGEST_DOCUMENTS, {}), work, lambda done, total, _note: told.append((done, total)))
    size = path.stat().st_size
    assert told == sorted(told)
    assert len(told) >= 3
    assert told[-1] == (size, size)


def test_too_many_rejects_name_reasons_and_an_example(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"a.md": "a", "b.md": "b", "c.md": b"\xff", "d.md": ""}
    with pytest.raises(TooManyRejects, match=r"2 of 4 rows .*not UTF-8: 1, such as c\.md.*max_reject_share"):
        ingest(tmp_path, files, max_reject_share=0.2)


def test_rejects_show_rows_as_json(tmp_path: Path) -> None:
    odd = "".join(map(chr, range(1, 128))) + 'é"\\"\u2028'
    path = write(tmp_path / "log.jsonl", lines(FULL | {"query": odd, "doc_id": None}, FULL))
    (reject,) = logs_of(path, tmp_path / "run", mask_personal_data=False).rejects
    shown = {key: str(value) for key, value in FULL.items() if key not in ("doc_id", "variant")}
    shown |= {"query": odd, "clicked": "true", "variant": FULL["variant"]}
    assert json.loads(reject["payload"]) == shown
    assert (reject["id"], reject["tenant"]) == ("e1", "acme")


def test_rejects_are_masked_before_they_are_cut(tmp_path: Path) -> None:
    address = "someone.with.a.name@example.com"
    late = "x" * (495 - len('{"query": "')) + " " + address
    rows = [
        FULL | {"query": address, "doc_id": ""},
        FULL | {"query": late, "doc_id": ""},
        '{"query": "' + address,
        FULL,
    ]
    path = write(tmp_path / "log.jsonl", lines(*rows))
    got = logs_of(path, tmp_path / "run")
    assert len(got.rejects) == 3
    assert all("someone" not in row["payload"] and len(row["payload"]) <= 500 for row in got.rejects)
    assert sum("[email]" in row["payload"] for row in got.rejects) >= 2
    open_ones = logs_of(path, tmp_path / "other", mask_personal_data=False)
    assert sum(address in row["payload"] for row in open_ones.rejects) == 2
