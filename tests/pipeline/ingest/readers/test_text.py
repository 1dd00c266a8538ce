"""Files cut into records: bounded memory, whatever the lines and quotes are like."""

import csv
import io
import tracemalloc
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.ingest.files import list_files
from darklode.pipeline.ingest.readers import text as pieces
from darklode.pipeline.ingest.readers.text import records_of

LIMIT = 1_000_000


def cut(path: Path, delimiter: str | None = None, limit: int = LIMIT) -> list[tuple[int, bytes, str | None]]:
    (file,) = list_files(str(path))
    return [
        (int(some.lines[at]), some.raw(at), some.faults.get(at))
        for some in records_of(file, lambda _: None, limit, delimiter)
        for at in range(len(some))
    ]


def test_a_line_of_50_mb_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.write(b"first\n")
        for _ in range(50):
            file.write(b"x" * 1_000_000)
        file.write(b"\nlast\n")
    tracemalloc.start()
    (first, second, third) = [(line, len(raw), fault) for line, raw, fault in cut(path)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (first, third) == ((1, 6, None), (3, 5, None))
    assert second[0] == 2
    assert second[2] == "row longer than 1000000 bytes"
    assert peak < 12_000_000


def test_a_quote_open_for_long_gives_up_on_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "open.csv"
    path.write_text('1,"open\n' + "2,good\n" * 1000)
    got = cut(path, ",", limit=100)
    assert got[0] == (1, b'1,"open\n', "quote never closed")
    assert got[1:] == [(line, b"2,good\n", None) for line in range(2, 1002)]


def test_a_quote_closed_too_late_was_never_closed(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    path.write_text('1,"open\n' + "2,good\n" * 100 + '3,"late\n')
    with patch.object(pieces, "PIECE_BYTES", 64):
        got = cut(path, ",", limit=300)
    assert [line for line, _, fault in got if fault == "quote never closed"] == [1, 102]
    assert len(got) == 102


FIELD = st.text('ab",\n é', max_size=6)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.lists(FIELD, min_size=2, max_size=3), max_size=8), size=st.integers(1, 20))
def test_csv_records_are_those_of_the_csv_module(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], size: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "d.csv"
    written, number = [], 1
    for row in rows:
        sink = io.StringIO()
        csv.writer(sink, lineterminator="\n").writerow(row)
        written.append((number, sink.getvalue().encode(), None))
        number += sink.getvalue().count("\n")
    path.write_bytes(b"".join(raw for _, raw, _ in written))
    with patch.object(pieces, "PIECE_BYTES", size):
        assert cut(path, ",") == written


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=8).filter(lambda line: not set(b"\r\n") & set(line)), max_size=10),
    size=st.integers(1, 9),
)
def test_lines_are_whole_and_numbered(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], size: int) -> None:
    path = tmp_path_factory.mktemp("lines") / "d.txt"
    path.write_bytes(b"|" + b"\n|".join(lines))
    with patch.object(pieces, "PIECE_BYTES", size):
        got = cut(path, limit=5)
    assert [line for line, _, _ in got] == list(range(1, max(len(lines), 1) + 1))
    assert [raw[:6] for _, raw, _ in got] == [(b"|" + line + b"\n")[:6] for line in lines or [b""]]
    assert [fault is not None for _, _, fault in got] == [len(line) + 1 > 5 for line in lines or [b""]]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_kind_of_line_end_ends_a_line(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(end.join([b"query,n", b"reset,1", b"close,2", b""]))
    assert [(line, raw.strip()) for line, raw, _ in cut(path, ",")] == [
        (1, b"query,n"),
        (2, b"reset,1"),
        (3, b"close,2"),
    ]


def test_a_line_end_cut_by_a_piece_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_bytes(b"abc\r\ndef\r\n")
    with patch.object(pieces, "PIECE_BYTES", 4):
        assert [(line, raw) for line, raw, _ in cut(path)] == [(1, b"abc\r\n"), (2, b"def\r\n")]
