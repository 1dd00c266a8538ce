"""The local copy of a source: what changed is replaced, what did not keeps its times."""

from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from darklode.pipeline.ingest.files import files_fingerprint, list_files
from darklode.pipeline.ingest.sources import snapshot as module
from darklode.pipeline.ingest.sources.snapshot import Snapshot

ROWS = [{"id": number, "text": "x" * 10} for number in range(9)]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 100)


def write(snapshot: Snapshot, rows: list[dict[str, object]], day: date | None = None) -> bool:
    snapshot.save()
    with closing(snapshot.writer("docs", day)) as writer:
        writer.write(rows)
        return writer.commit()


def lines(folder: Path) -> list[str]:
    return [line for file in list_files(str(folder)) for line in file.path.read_text().splitlines()]


def test_parts_hold_the_rows_in_order(tmp_path: Path) -> None:
    assert write(Snapshot(tmp_path, "a"), list(ROWS))
    files = list_files(str(tmp_path))
    assert [file.name for file in files] == [f"docs-{number:05d}.jsonl" for number in range(3)]
    assert all(file.size <= 100 for file in files)
    assert lines(tmp_path) == [f'{{"id":{number},"text":"xxxxxxxxxx"}}' for number in range(9)]


def test_unchanged_parts_stay_as_they_are(tmp_path: Path) -> None:
    write(Snapshot(tmp_path, "a"), list(ROWS))
    before = {file.name: file for file in list_files(str(tmp_path))}
    fingerprint = files_fingerprint(before.values())
    assert not write(Snapshot(tmp_path, "a"), list(ROWS))
    assert files_fingerprint(list_files(str(tmp_path))) == fingerprint
    assert write(Snapshot(tmp_path, "a"), [*ROWS[:-1], {"id": 8, "text": "y" * 10}])
    after = {file.name: file for file in list_files(str(tmp_path))}
    assert [name for name in before if before[name] != after[name]] == ["docs-00002.jsonl"]
    assert write(Snapshot(tmp_path, "a"), ROWS[:3])
    assert len(lines(tmp_path)) == 3


def test_what_an_interrupted_fetch_wrote_is_not_read(tmp_path: Path) -> None:
    write(Snapshot(tmp_path, "a"), list(ROWS))
    with closing(Snapshot(tmp_path, "a").writer("docs")) as killed:
        killed.write([{"id": "new", "text": "z" * 99}])
    assert len(lines(tmp_path)) == 9
    Snapshot(tmp_path, "a")
    assert not (tmp_path / module.NEW_FOLDER).exists()
    assert len(lines(tmp_path)) == 9


def test_days_are_folders_and_an_empty_day_goes(tmp_path: Path) -> None:
    snapshot, day = Snapshot(tmp_path, "a"), date(2026, 3, 1)
    write(snapshot, ROWS[:2], day)
    assert [file.name for file in list_files(str(tmp_path))] == ["date=2026-03-01/docs-00000.jsonl"]
    assert list(snapshot.days("docs")) == [day]
    assert list(snapshot.days("other")) == []
    assert write(snapshot, [], day)
    assert list_files(str(tmp_path)) == []
    assert list(snapshot.days("docs")) == []


def test_the_state_is_kept_and_another_source_empties_the_snapshot(tmp_path: Path) -> None:
    first = Snapshot(tmp_path, "a")
    write(first, ROWS[:2], date(2026, 3, 1))
    first.state.through["docs"] = "2026-03-01"
    first.save()
    assert Snapshot(tmp_path, "a").state.last_day("docs") == date(2026, 3, 1)
    assert tmp_path.stat().st_mode & 0o077 == 0
    other = Snapshot(tmp_path, "b")
    assert other.state.last_day("docs") is None
    assert list_files(str(tmp_path)) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"unknown": 1}'])
def test_a_damaged_state_counts_as_that_of_another_source(tmp_path: Path, content: str) -> None:
    snapshot = Snapshot(tmp_path, "a")
    write(snapshot, ROWS[:2])
    (tmp_path / module.STATE_FILE).write_text(content)
    assert Snapshot(tmp_path, "a").state == module.SnapshotState("a")
    assert list_files(str(tmp_path)) == []
