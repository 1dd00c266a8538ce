"""The ledger: which verdict stands, many writers, parts that are not to be trusted, merging beside readers, S3."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory import parts as part_files
from darklode.pipeline.base.memory import rows as row_parts
from darklode.pipeline.base.memory import store
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.port import REPLIES
from helpers.runs import PYTHONPATH
from helpers.scripted_judge import NOT_RELEVANT, RELEVANT, UNREADABLE, Said
from helpers.scripted_stream import pairs, replies

JUDGE = "model@1 prompt:'a/b' é"


def held(kept: Ledger, *ids: tuple[int, int]) -> list[dict[str, Any] | None]:
    """What stands for each pair; None where nothing does."""
    found = kept.open(JUDGE).find(pairs(*ids))
    assert found.values.schema.equals(REPLIES)
    rows = dict(zip(found.rows.tolist(), found.values.to_pylist(), strict=True))
    return [rows.get(row) for row in range(len(ids))]


def labels(kept: Ledger, *ids: tuple[int, int]) -> list[str | None]:
    return [row and row["raw_reply"] for row in held(kept, *ids)]


def saying(raw: str, said: Said = RELEVANT) -> Said:
    return {**said, "raw_reply": raw}


def parts(kept: Ledger) -> list[Path]:
    return sorted(Path(kept.parts.store.url).rglob("*.parquet"))


@pytest.fixture
def kept(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path))


def test_what_was_appended_is_found_in_any_order(kept: Ledger) -> None:
    assert labels(kept, (1, 2)) == [None]
    said = {
        **RELEVANT,
        "grade": 3,
        "expected_grade": 2.5,
        "rationale": "a\nb",
        "truncated": True,
        "raw_reply": '{"grade": 3}',
        "prompt_tokens": 900,
        "cached_tokens": 800,
        "completion_tokens": 2,
        "attempts": 1,
    }
    kept.add(JUDGE, pairs((1, 2), (2, 1)), replies(said, saying("b", NOT_RELEVANT)))
    kept.add(JUDGE, pairs((5, 5)), replies({**UNREADABLE, "attempts": 3}))
    found = held(kept, (5, 5), (1, 1), (2, 1), (1, 2), (5, 5))
    assert found[3] == replies(said).to_pylist()[0]
    assert [row and row["raw_reply"] for row in found] == ["see RFC 2119", None, "b", '{"grade": 3}', "see RFC 2119"]
    assert found[0] == replies({**UNREADABLE, "attempts": 3}).to_pylist()[0]


def test_the_judge_the_query_and_the_chunk_name_a_verdict(kept: Ledger) -> None:
    kept.add(JUDGE, pairs((1, 2)), replies(saying("mine")))
    kept.add("another judge", pairs((1, 3)), replies(saying("theirs")))
    assert labels(kept, (1, 2), (2, 1), (1, 3), (1, 1)) == ["mine", None, None, None]
    other = pairs((1, 2), tenant="another tenant")
    assert len(kept.open(JUDGE).find(other).rows) == 1, "texts make a verdict, not ids"


def test_the_first_label_stands_and_beats_every_null(kept: Ledger) -> None:
    for raw, said in (("n1", UNREADABLE), ("a1", RELEVANT), ("n2", UNREADABLE), ("a2", NOT_RELEVANT)):
        kept.add(JUDGE, pairs((1, 1)), replies(saying(raw, said)))
    for raw in ("n1", "n2"):
        kept.add(JUDGE, pairs((2, 2)), replies(saying(raw, UNREADABLE)))
    for _ in range(2):
        assert labels(kept, (1, 1), (2, 2)) == ["a1", "n2"]
        kept.merge(JUDGE)
    kept.add(JUDGE, pairs((2, 2)), replies(saying("a1")))
    assert labels(kept, (1, 1), (2, 2)) == ["a1", "a1"]


def model(written: list[list[tuple[int, bool]]]) -> dict[int, str]:
    """What must stand, by pair: the first label, else the last null."""
    stands: dict[int, tuple[bool, str]] = {}
    for number, rows in enumerate(written):
        for place, (pair, labelled) in enumerate(rows):
            before = stands.get(pair)
            if before is None or not before[0]:
                same_part = before is not None and before[1].startswith(f"{number}:") and not labelled
                stands[pair] = before if same_part and before else (labelled, f"{number}:{place}")
    return {pair: raw for pair, (_, raw) in stands.items()}


ROWS = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=6)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(written=st.lists(ROWS, max_size=8), refresh=st.sets(st.integers(0, 8)), merge=st.sets(st.integers(0, 8)))
def test_what_stands_depends_on_the_order_of_writing_only(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[list[tuple[int, bool]]],
    refresh: set[int],
    merge: set[int],
) -> None:
    kept = Ledger(str(tmp_path_factory.mktemp("ledger")))
    reader = kept.open(JUDGE)
    for number, rows in enumerate(written):
        said = [saying(f"{number}:{place}", RELEVANT if row[1] else UNREADABLE) for place, row in enumerate(rows)]
        kept.add(JUDGE, pairs(*((pair, pair) for pair, _ in rows)), replies(*said))
        if number in refresh:
            reader.refresh()
        if number in merge:
            kept.merge(JUDGE)
    reader.refresh()
    everything = pairs(*((pair, pair) for pair in range(13)))
    for known in (reader, kept.open(JUDGE)):
        found = known.find(everything)
        assert dict(zip(found.rows.tolist(), found.values["raw_reply"].to_pylist(), strict=True)) == model(written)
        assert len(known) == len(known.rows(["relevant"])) == len(model(written))


@pytest.mark.parametrize(
    ("rows", "said", "message"),
    [
        (pairs((1, 1), (2, 2)), replies(RELEVANT), "1 replies to 2 pairs"),
        (pairs((1, 1)), replies(RELEVANT).drop(["error"]), "schema"),
        (pairs((1, 1)), replies({}), "a reply without a label must say why in `error`"),
        (pairs((1, 1)).set_column(7, "query_hash", pa.array(["short"])), replies(RELEVANT), "not a content hash"),
    ],
    ids=["too few", "another schema", "silent null", "no hash"],
)
def test_what_is_no_verdict_is_refused(kept: Ledger, rows: pa.Table, said: pa.Table, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kept.add(JUDGE, rows, said)
    assert parts(kept) == []


def test_a_place_that_cannot_be_written_is_said(kept: Ledger) -> None:
    Path(kept.parts.store.url, "verdicts").write_text("a file in the way")
    with pytest.raises(ArtifactError, match="1 verdicts cannot be written"):
        kept.add(JUDGE, pairs((1, 1)), replies(RELEVANT))


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    """Some bytes of the first column's data differ; the footer is whole."""
    data = bytearray(path.read_bytes())
    data[60:70] = bytes(10)
    path.write_bytes(data)


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


def of_another_judge(path: Path) -> None:
    pq.write_table(pq.read_table(path).replace_schema_metadata({"judge_id": "someone"}), path)


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        rows = pq.read_table(path)
        pq.write_table(change(rows).replace_schema_metadata(rows.schema.metadata), path)

    return write


def column(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.set_column(rows.column_names.index(name), name, pa.array([value]))


BREAKS = {
    "torn": torn,
    "empty": emptied,
    "flipped": flipped,
    "foreign": foreign,
    "another judge's": of_another_judge,
    "no hash": rewritten(column("query_hash", "abc")),
    "null hash": rewritten(column("chunk_hash", None)),
    "another type": rewritten(column("relevant", "yes")),
    "silent null": rewritten(lambda rows: column("error", None)(column("relevant", None)(rows))),
    "without labels": rewritten(lambda rows: rows.drop(["relevant"])),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_part_that_is_not_whole_is_skipped_and_named(kept: Ledger, name: str) -> None:
    for number in range(3):
        kept.add(JUDGE, pairs((number, number)), replies(saying(str(number))))
    bad = parts(kept)[1]
    BREAKS[name](bad)
    for _ in range(2):
        known = kept.open(JUDGE)
        assert known.find(pairs((0, 0), (1, 1), (2, 2))).rows.tolist() == [0, 2]
        assert [place.split(":")[0] for place in known.damaged_parts] == [str(bad)]
        row = kept.usage().to_pylist()[0]
        assert (row["verdicts"], len(row["damaged"])) == (2, 1)
        kept.merge(JUDGE)
    assert bad.is_file(), "it is not for merging to delete it"


def test_a_part_whose_replies_turn_out_torn_is_skipped_from_then_on(kept: Ledger) -> None:
    texts = [saying("x" * 3000 + str(number)) for number in range(2)]
    for number, said in enumerate(texts):
        kept.add(JUDGE, pairs((number, number)), replies(said))
    known = kept.open(JUDGE)
    data = bytearray(parts(kept)[0].read_bytes())
    place = pq.read_metadata(parts(kept)[0]).row_group(0).column(3 + REPLIES.names.index("raw_reply"))
    data[place.dictionary_page_offset + 30] ^= 255
    parts(kept)[0].write_bytes(data)
    assert known.find(pairs((0, 0), (1, 1))).rows.tolist() == [1]
    assert len(known.damaged_parts) == 1


def test_a_place_that_fails_for_a_moment_costs_no_part(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.add(JUDGE, pairs((1, 1)), replies(saying("kept")))
    opened = row_parts._open

    def fails(source: pa.NativeFile) -> pq.ParquetFile:
        if isinstance(source, pa.BufferReader):
            return opened(source)
        raise OSError("the network is down")

    monkeypatch.setattr(row_parts, "_open", fails)
    known = kept.open(JUDGE)
    assert known.find(pairs((1, 1))).values["raw_reply"].to_pylist() == ["kept"]
    assert known.damaged_parts == []

    def unreadable(*_: object) -> None:
        raise OSError("the network is down")

    monkeypatch.setattr(type(kept.parts.store), "read", unreadable)
    with pytest.raises(ArtifactError, match="cannot be read: the network is down"):
        kept.open(JUDGE)


def test_parts_of_other_versions_are_read(kept: Ledger) -> None:
    kept.add(JUDGE, pairs((1, 1)), replies(saying("old")))
    kept.add(JUDGE, pairs((2, 2)), replies(saying("new")))
    rewritten(lambda rows: rows.drop(["rationale", "attempts"]))(parts(kept)[0])
    rewritten(lambda rows: rows.append_column("mood", pa.array(["fine"])))(parts(kept)[1])
    for _ in range(2):
        assert labels(kept, (1, 1), (2, 2)) == ["old", "new"]
        kept.merge(JUDGE)
    assert held(kept, (1, 1))[0] == replies(saying("old")).to_pylist()[0]


def test_merging_leaves_one_part_and_the_same_verdicts(kept: Ledger) -> None:
    for number in range(30):
        said = [saying(f"{number}", RELEVANT if number % 3 else UNREADABLE)] * 2
        kept.add(JUDGE, pairs((number, 0), (0, number)), replies(*said))
    ids = [(number, 0) for number in range(31)] + [(0, number) for number in range(31)]
    before, reader = held(kept, *ids), kept.open(JUDGE)
    assert kept.merge(JUDGE) == 29
    assert len(parts(kept)) == 1
    assert held(kept, *ids) == before
    assert kept.merge(JUDGE) == 0
    found = reader.find(pairs(*ids))  # its parts are gone
    assert [before[row] for row in found.rows] == found.values.to_pylist()


def test_a_kill_before_the_merged_parts_are_deleted_changes_nothing(
    kept: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        kept.add(JUDGE, pairs((number, 0), (9, 9)), replies(saying(f"{number}"), saying(f"{number}", UNREADABLE)))
    ids = [(0, 0), (1, 0), (2, 0), (3, 0), (9, 9)]
    before = held(kept, *ids)
    with monkeypatch.context() as patch:
        patch.setattr(type(kept.parts.store), "delete", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            kept.merge(JUDGE)
    assert len(parts(kept)) == 5
    assert held(kept, *ids) == before
    assert kept.usage()["verdicts"].to_pylist() == [5]
    kept.merge(JUDGE)
    assert (len(parts(kept)), held(kept, *ids)) == (1, before)


def test_large_parts_are_left_alone(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        kept.add(JUDGE, pairs((number, number)), replies(saying(str(number))))
    size = parts(kept)[0].stat().st_size
    monkeypatch.setattr(store, "LARGE_BYTES", int(size * 2.5))
    assert kept.merge(JUDGE) == 6  # by threes
    monkeypatch.setattr(store, "LARGE_BYTES", size)
    before = [path.name for path in parts(kept)]
    assert kept.merge(JUDGE) == 0
    assert [path.name for path in parts(kept)] == before
    assert labels(kept, *((number, number) for number in range(9))) == [str(number) for number in range(9)]


@pytest.mark.slow
def test_readers_writers_and_mergers_at_once(kept: Ledger) -> None:
    stop, failures = threading.Event(), list[BaseException]()

    def work(action: Callable[[], None]) -> threading.Thread:
        def repeat() -> None:
            try:
                while not stop.is_set():
                    action()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=repeat)
        thread.start()
        return thread

    reader = kept.open(JUDGE)

    def read() -> None:
        reader.refresh()
        found = reader.find(pairs(*((number, number) for number in range(60))))
        assert found.rows.tolist() == list(range(len(found.rows))), "a verdict vanished"

    others = [work(lambda: kept.merge(JUDGE) and None) for _ in range(2)] + [work(read) for _ in range(1)]
    for number in range(60):
        kept.add(JUDGE, pairs((number, number)), replies(saying(str(number))))
    stop.set()
    for thread in others:
        thread.join()
    assert failures == []
    assert labels(kept, *((number, number) for number in range(60))) == [str(number) for number in range(60)]


WRITE = """
import sys
from darklode.pipeline.judge.ledger import Ledger
from helpers.scripted_stream import pairs, replies
kept, first = Ledger(sys.argv[1]), int(sys.argv[2])
for n in range(first, first + 40):
    said = {"relevant": n % 2 == 0, "raw_reply": f"{first}:{n}", "attempts": 1}
    kept.add("model", pairs((n, n), (n, 0)), replies(said, said))
    if n % 10 == 9 and first:
        kept.merge("model")
    print(n, flush=True)
"""


def start(root: Path, first: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    return subprocess.Popen([sys.executable, "-c", WRITE, str(root), str(first)], env=environment, stdout=-1)


@pytest.mark.slow
def test_processes_append_and_merge_at_once(tmp_path: Path) -> None:
    processes = [start(tmp_path, first) for first in (0, 20, 40)]
    assert [(process.communicate(), process.returncode)[1] for process in processes] == [0, 0, 0]
    kept = Ledger(str(tmp_path))
    everything = pairs(*((number, number) for number in range(1, 80)))
    first, second = (kept.open("model").find(everything) for _ in range(2))
    assert first.rows.tolist() == list(range(79))
    assert first.values.equals(second.values)
    kept.merge("model")
    assert kept.open("model").find(everything).values.equals(first.values)
    assert kept.usage().to_pylist()[0]["verdicts"] == 80 + 79


def test_a_killed_writer_leaves_whole_parts_only(tmp_path: Path) -> None:
    process = start(tmp_path, 20)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 45:
            process.send_signal(signal.SIGKILL)
            break
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    kept = Ledger(str(tmp_path))
    known = kept.open("model")
    assert known.damaged_parts == []
    assert set(range(26)) <= set(known.find(pairs(*((number, number) for number in range(20, 60)))).rows.tolist())


def test_judges_are_counted_and_pruned_one_by_one(kept: Ledger) -> None:
    tokens = {"prompt_tokens": 100, "cached_tokens": 60, "completion_tokens": 2}
    kept.add(JUDGE, pairs((1, 1), (2, 2)), replies(RELEVANT | tokens, UNREADABLE | tokens))
    kept.add(JUDGE, pairs((2, 2)), replies(NOT_RELEVANT))
    kept.add("another", pairs((1, 1)), replies(UNREADABLE | tokens))
    first, second = kept.usage().to_pylist()
    assert first["judge_id"] == "another"
    assert (first["verdicts"], first["relevant"], first["nulls"], first["prompt_tokens"]) == (1, 0, 1, 100)
    assert (second["judge_id"], second["parts"], second["damaged"]) == (JUDGE, 2, [])
    assert (second["verdicts"], second["relevant"], second["nulls"]) == (2, 1, 0)
    assert (second["prompt_tokens"], second["cached_tokens"], second["completion_tokens"]) == (100, 60, 2)
    assert kept.prune([JUDGE]) == second["bytes"] > 0
    assert kept.usage()["judge_id"].to_pylist() == ["another"]
    assert labels(kept, (1, 1)) == [None]
    kept.add(JUDGE, pairs((1, 1)), replies(RELEVANT))
    assert kept.usage()["judge_id"].to_pylist() == ["another", JUDGE]
    assert kept.prune() > 0
    assert kept.usage().num_rows == 0


def test_a_damaged_record_is_said(kept: Ledger) -> None:
    kept.add(JUDGE, pairs((1, 1)), replies(RELEVANT))
    next(Path(kept.parts.store.url).rglob("judge.json")).write_text('{"judge_id": "someone else"}')
    with pytest.raises(ArtifactError, match=r"judge\.json is damaged.*delete it"):
        kept.usage()


def test_no_root_is_beside_the_embedding_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_files, "default_root", lambda: str(tmp_path / "home"))
    assert Ledger(None).parts.store.url == str((tmp_path / "home").resolve())


@pytest.mark.slow
@pytest.mark.server
def test_a_bucket_is_a_root(bucket: str) -> None:
    kept = Ledger(bucket)
    assert labels(kept, (1, 1)) == [None]
    for number in range(5):
        kept.add(JUDGE, pairs((number, number)), replies(saying(str(number))))
    kept.parts.store.write(f"{next(iter(ledger_files(kept)))}.parquet", b"half")
    reader = kept.open(JUDGE)
    assert len(reader.damaged_parts) == 1
    assert kept.merge(JUDGE) == 4
    assert reader.find(pairs((3, 3), (7, 7), (0, 0))).values["raw_reply"].to_pylist() == ["3", "0"]
    row = kept.usage().to_pylist()[0]
    assert (row["judge_id"], row["verdicts"], row["parts"]) == (JUDGE, 5, 2)
    assert kept.prune() == row["bytes"]
    assert labels(kept, (1, 1)) == [None]


def ledger_files(kept: Ledger) -> Iterator[str]:
    for folder in kept.parts.store.folders("verdicts"):
        yield from kept.parts.store.sizes(f"verdicts/{folder}")


def test_many_look_ups_agree_with_a_dictionary(kept: Ledger) -> None:
    generator = np.random.default_rng(1)
    expected = {}
    for number in range(20):
        ids = [tuple(pair) for pair in generator.integers(0, 60, (100, 2)).tolist()]
        kept.add(JUDGE, pairs(*ids), replies(*(saying(f"{number}:{place}") for place in range(100))))
        for place, pair in enumerate(ids):
            expected.setdefault(pair, f"{number}:{place}")
    asked = [(query, chunk) for query in range(61) for chunk in range(61)]
    assert labels(kept, *asked) == [expected.get(pair) for pair in asked]
