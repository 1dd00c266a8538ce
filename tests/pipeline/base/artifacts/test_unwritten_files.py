"""Small files wait a few seconds to be written together, records after the parts that they name."""

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts import unwritten_files as module
from darklode.pipeline.base.artifacts.unwritten_files import MAX_BYTES, UnwrittenFiles


def names(run: Run) -> set[str]:
    return set(run.store.sizes("", recursive=True))


def test_parts_and_their_records_wait_for_one_another(run: Run) -> None:
    waiting = UnwrittenFiles(run.store)
    waiting.write_record("progress/a.json", b"{}")
    assert names(run) == {"progress/a.json"}  # nothing to wait for
    waiting.add_part("tables/one", memoryview(b"rows"))
    waiting.write_record("progress/b.json", b"{}")
    assert names(run) == {"progress/a.json"}
    waiting.write()
    assert names(run) == {"progress/a.json", "progress/b.json", "tables/one"}
    assert not waiting.parts


def test_memory_is_bounded(run: Run) -> None:
    waiting = UnwrittenFiles(run.store)
    waiting.add_part("tables/one", memoryview(bytes(MAX_BYTES - 1)))
    assert names(run) == set()
    waiting.add_part("tables/two", memoryview(b"x"))
    assert names(run) == {"tables/one", "tables/two"}


def test_old_files_are_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = UnwrittenFiles(run.store)
    waiting.add_part("tables/one", memoryview(b"rows"))
    monkeypatch.setattr(module, "MAX_SECONDS", 0.0)
    waiting.write_record("progress/b.json", b"{}")
    assert names(run) == {"tables/one", "progress/b.json"}


def test_files_of_a_slow_unit_do_not_wait(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(f"{module.__name__}.time.monotonic", lambda: now)
    waiting = UnwrittenFiles(run.store)
    now += 60  # the unit's work
    waiting.add_part("tables/one", memoryview(b"rows"))
    waiting.write_record("progress/a.json", b"{}")
    assert names(run) == {"tables/one", "progress/a.json"}
    waiting.add_part("tables/two", memoryview(b"rows"))
    waiting.write_record("progress/b.json", b"{}")
    assert names(run) == {"tables/one", "progress/a.json"}  # a fast one


def test_dropped_files_are_never_written(run: Run) -> None:
    waiting = UnwrittenFiles(run.store)
    waiting.add_part("tables/one", memoryview(b"rows"))
    waiting.drop()
    waiting.write()
    assert names(run) == set()
