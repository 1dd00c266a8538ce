"""The same rows give the same bytes, whatever pieces they are read and written in."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.ingest import log_rows as staging
from darklode.pipeline.ingest.readers import parquet as columnar
from darklode.pipeline.ingest.readers import text as pieces
from helpers.log_ingesting import at, logs_of

ROWS = 3000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    draw = random.Random(7)
    ids = [draw.randrange(ROWS // 2) for _ in range(ROWS)]
    return pa.table(
        {
            "timestamp": [at(10 + number % 3, number % 60) for number in ids],
            "query": [f"Query {number % 50}" for number in ids],
            "doc_id": [f"d{number}" for number in ids],
            "position": [number % 10 or None for number in ids],
            "clicked": [draw.random() < 0.3 for _ in ids],
            "dwell_seconds": [draw.choice([None, 1.5, 20.0]) for _ in ids],
            "session_id": [draw.choice([None, "s", "t"]) for _ in ids],
        }
    )


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    return table.take(random.Random(seed).sample(range(len(table)), len(table)))


def test_order_files_and_formats_do_not_matter(tmp_path: Path, table: pa.Table) -> None:
    for number, pieces_of in enumerate((1, 2, 5)):
        folder = tmp_path / f"{number}/2026-03-01"
        folder.mkdir(parents=True)
        rows = shuffled(table, number)
        for start in range(pieces_of):
            part = rows.take(list(range(start, len(rows), pieces_of)))
            pq.write_table(part, folder / f"{start}.parquet", row_group_size=100 * pieces_of)
    got = [logs_of(tmp_path / f"{number}", tmp_path / f"run{number}") for number in range(3)]
    assert got[0].files == got[1].files == got[2].files
    assert len(got[0].rows) == ROWS


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(columnar, "MOST_ROWS", 7), (staging, "BATCH_ROWS", 2048), (pieces, "PIECE_BYTES", 1000)],
)
def test_batches_do_not_matter(
    tmp_path: Path, table: pa.Table, module: object, name: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    pq.write_table(table, tmp_path / "log/2026-03-01.parquet")
    (tmp_path / "log/2026-03-02.csv").write_text("timestamp,query,doc_id,clicked\n" + "2026-03-02,a,d,1\n" * 500)
    usual = logs_of(tmp_path / "log", tmp_path / "usual")
    monkeypatch.setattr(module, name, value)
    assert logs_of(tmp_path / "log", tmp_path / "other").files == usual.files


def test_a_day_of_many_rows_has_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "2026-03-01.parquet")
    whole = logs_of(tmp_path / "2026-03-01.parquet", tmp_path / "whole")
    monkeypatch.setattr(staging, "PART_ROWS", 1024)
    got = logs_of(tmp_path / "2026-03-01.parquet", tmp_path / "run")
    assert [part.rows for part in got.manifest.outputs["impressions"]] == [1024, 1024, 952]
    assert got.manifest.facts["days"] == {"2026-03-01": [0, 1, 2]}
    assert got.rows == whole.rows
