"""A trial finds what the stage would end with, in its words, and keeps nothing."""

from datetime import date
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import DarklodeError, InputError, TooManyRejects
from darklode.pipeline.ingest import documents, input_check
from darklode.pipeline.ingest.input_check import check_documents, check_log, check_queries
from darklode.pipeline.ingest.logs import log_sources
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings
from helpers.ingesting import documents_of, lines, queries_of, write
from helpers.runs import SAMPLE

PLAIN = IngestSettings()


def test_the_sample_passes_in_silence() -> None:
    assert check_documents(str(SAMPLE), PLAIN) == []
    assert check_queries(str(SAMPLE), PLAIN) == []
    assert check_log(str(SAMPLE), LogSettings(), PLAIN, None, {}) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.csv", "search_term,n\nhow to reset,1\n"),
        ("q.csv", ""),
        ("q.csv", "text,count\na,x\nb,y\nc,1\n"),
        ("q.jsonl", "{}\n{}\n"),
        ("q.parquet", "no parquet"),
        ("q.csv.gz", b"\x1f\x8b\x08"),
    ],
)
def test_it_ends_as_the_stage_of_queries_would(tmp_path: Path, name: str, content: str | bytes) -> None:
    file = write(tmp_path / name, content)
    with pytest.raises(InputError) as tried:
        check_queries(str(file), PLAIN)
    with pytest.raises(InputError) as ended:
        queries_of(file, tmp_path / "run", max_reject_share=PLAIN.max_reject_share)
    assert str(tried.value) == str(ended.value)
    assert type(tried.value) is type(ended.value)


def test_it_ends_as_the_stage_of_documents_would(tmp_path: Path) -> None:
    write(tmp_path / "docs" / "a.md", "---\ntitle: x\n---\ntext\n")
    named = {"documents": {"columns": {"tenant": "org"}}}
    with pytest.raises(InputError, match="no column 'org'") as tried:
        check_documents(str(tmp_path / "docs"), IngestSettings.model_validate(named))
    with pytest.raises(InputError) as ended:
        documents_of(tmp_path / "docs", tmp_path / "run", **named)
    assert str(tried.value) == str(ended.value)


def test_a_few_bad_rows_are_worth_a_note(tmp_path: Path) -> None:
    file = write(tmp_path / "q.jsonl", lines(*({"text": f"q{n}"} for n in range(9)), "{"))
    (note,) = check_queries(str(file), PLAIN)
    assert note == f"{file}: 1 of the first 10 rows are unreadable (JSON syntax error: 1, such as q.jsonl:10)"


def test_of_a_long_source_the_beginning_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad beginning may be a small part of all rows: the stage counts them."""
    monkeypatch.setattr(input_check, "PIECE_BYTES", 100)
    file = write(tmp_path / "q.jsonl", lines("{", "{", *({"text": f"query {n}"} for n in range(20))))
    assert "2 of the first 22 rows" in check_queries(str(file), IngestSettings(max_reject_share=0.05))[0]
    monkeypatch.undo()
    with pytest.raises(TooManyRejects):
        check_queries(str(file), IngestSettings(max_reject_share=0.05))


def log_of(folder: Path, day: str, header: str = "timestamp,query,doc_id,clicked", clicked: str = "true") -> None:
    write(folder / f"{day}.csv", f"{header}\n{day}T10:00:00,how,d1,{clicked}\n")


def test_the_last_night_of_a_long_log_is_looked_into(tmp_path: Path) -> None:
    for number in range(1, 20):
        log_of(tmp_path, f"2026-03-{number:02d}")
    assert check_log(str(tmp_path), LogSettings(), PLAIN, None, {}) == []
    log_of(tmp_path, "2026-03-20", "time,query,doc_id,clicked")
    with pytest.raises(InputError, match=r"2026-03-20\.csv has no column for the timestamp.*--set logs\.columns\.tim"):
        check_log(str(tmp_path), LogSettings(), PLAIN, None, {})


def test_days_that_were_read_before_are_not_looked_into_again(tmp_path: Path) -> None:
    log_of(tmp_path, "2026-03-01", "time,query,doc_id,clicked")
    read_before = {name: str(basis) for name, basis in log_sources(str(tmp_path), LogSettings(), None, {}).items()}
    assert check_log(str(tmp_path), LogSettings(), PLAIN, None, read_before) == []
    log_of(tmp_path, "2026-03-01", "when,query,doc_id,clicked")
    with pytest.raises(InputError, match=r"2026-03-01\.csv has no column for the timestamp"):
        check_log(str(tmp_path), LogSettings(), PLAIN, None, read_before)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"settings": LogSettings(time_zone="Mars/Base")}, "Mars/Base"),
        ({"dates": [date(2026, 4, 1)]}, "no partition for 2026-04-01; nearest: 2026-03-01"),
    ],
)
def test_zone_and_days_are_looked_at(tmp_path: Path, given: dict[str, object], said: str) -> None:
    log_of(tmp_path, "2026-03-01")
    usual: dict[str, object] = {"settings": LogSettings(), "ingest": PLAIN, "dates": None, "earlier_days": {}}
    with pytest.raises(DarklodeError, match=said):
        check_log(str(tmp_path), **usual | given)  # type: ignore[arg-type]


def test_a_log_whose_clicks_are_no_clicks_is_refused(tmp_path: Path) -> None:
    log_of(tmp_path, "2026-03-01", clicked="perhaps")
    with pytest.raises(TooManyRejects, match="neither a boolean nor a count"):
        check_log(str(tmp_path), LogSettings(), PLAIN, None, {})


def test_of_many_pages_the_first_are_read_and_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No page among the first has the key that the settings name; one after them may."""
    reads: list[str] = []
    read = documents.read_prose
    monkeypatch.setattr(documents, "read_prose", lambda text, form: reads.append(text) or read(text, form))
    for number in range(input_check.MAX_CHECKED_PAGES):
        write(tmp_path / "docs" / f"{number:03}.md", "---\ntitle: [\n---\ntext")
    write(tmp_path / "docs" / "zz.md", "---\norg: x\n---\ntext\n")
    named = IngestSettings.model_validate({"documents": {"columns": {"tenant": "org"}}})
    (note,) = check_documents(str(tmp_path / "docs"), named)
    assert note.startswith(
        f"{tmp_path / 'docs'}: {input_check.MAX_CHECKED_PAGES} of the first {input_check.MAX_CHECKED_PAGES} rows are "
        "unreadable"
    )
    assert len(reads) == input_check.MAX_CHECKED_PAGES


def test_a_folder_of_documents_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A page")
    (tmp_path / "other.md").write_text("# Another page")
    with pytest.raises(InputError, match=r"no search log, only other files \(2 \.md\); give a folder of \.jsonl"):
        check_log(str(tmp_path), LogSettings(), IngestSettings(), None, {})
