"""A log read day by day: once, again where it was replaced, and kept when its files are gone."""

import os
import random
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.errors import InputError, TooManyRejects
from darklode.pipeline.ingest import log_rows as staging
from darklode.pipeline.ingest.readers import parquet as columnar
from darklode.pipeline.ingest.readers import text as pieces
from helpers.ingesting import write
from helpers.log_ingesting import HEADER, Mined, at, day_of, logs_of
from helpers.runs import SAMPLE


def march(*days: int) -> list[date]:
    return [date(2026, 3, day) for day in days]


def log_of_days(folder: Path, *days: int) -> Path:
    for day in days:
        write(folder / f"date=2026-03-{day:02d}/a.csv", day_of(day, *broken_and_good(day)))
    return folder


def broken_and_good(day: int) -> list[str]:
    return [f"s,2026-03-{day:02d}T1{hour}:00:00Z,query {hour},d{hour},1,{hour % 2}" for hour in range(5)] + [
        f"s,2026-03-{day - 1:02d}T23:00:00Z,late,d,1,1",
        "s,,no time,d,1,1",
    ]


def test_one_day_at_a_time_gives_the_bytes_of_all_at_once(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2, 3, 4)
    whole = logs_of(log, tmp_path / "whole")
    assert whole.manifest.facts["days"] == {
        "2026-03-01": [0], "2026-03-02": [1, 2], "2026-03-03": [3, 4], "2026-03-04": [5],
    }  # fmt: skip
    for order in ((2, 3, 4), (4, 2, 3)):
        run = tmp_path / f"nightly-{order[0]}"
        for day in order:
            last = logs_of(log, run, dates=march(day), nightly=True)
        assert (last.files, last.manifest.facts) == (whole.files, whole.manifest.facts)
        assert last.manifest.funnel == whole.manifest.funnel


def test_days_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2, 3)
    write(tmp_path / "log/date=2026-03-09/a.csv", b"\0\0 no log at all")
    write(tmp_path / "log/undated.csv", day_of(5))
    got = logs_of(log, tmp_path / "run", dates=march(3))
    assert list(got.manifest.facts["sources"]) == ["2026-03-03"]
    with pytest.raises(InputError, match="partition for 2026-03-05; nearest: 2026-03-02, 2026-03-03, 2"):
        logs_of(log, tmp_path / "run", dates=march(3, 5))


def test_what_was_read_stays_when_its_files_are_gone(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2, 3)
    first = logs_of(log, tmp_path / "run")
    shutil.rmtree(log)
    log.mkdir()
    again = logs_of(log, tmp_path / "run", nightly=True)
    assert (again.files, again.manifest.facts) == (first.files, first.manifest.facts)
    assert again.manifest.funnel == first.manifest.funnel
    assert again.manifest.funnel[0].dropped == {"missing timestamp": 2}
    log_of_days(log, 4)
    more = logs_of(log, tmp_path / "run", nightly=True, dates=march(2, 4))
    assert list(more.manifest.facts["sources"]) == ["2026-03-02", "2026-03-03", "2026-03-04"]
    shutil.rmtree(log)
    log.mkdir()
    with pytest.raises(InputError, match="no impressions"):
        logs_of(log, tmp_path / "fresh")


def test_other_settings_need_the_files_again(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2, 3)
    logs_of(log, tmp_path / "run")
    again = logs_of(log, tmp_path / "run", nightly=True, dates=march(3), first_position=0)
    assert set(again.column("position")) == {2}, "also the day that was not asked for"
    shutil.rmtree(log / "date=2026-03-02")
    with pytest.raises(InputError, match=r"2026-03-02 must be read again.*gone from"):
        logs_of(log, tmp_path / "run", nightly=True, first_position=1)


def test_a_replaced_day_is_read_again_when_it_is_asked_for(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2, 3)
    first = logs_of(log, tmp_path / "run")
    write(log / "date=2026-03-02/a.csv", day_of(2))
    kept = logs_of(log, tmp_path / "run", dates=march(3), nightly=True)
    assert (kept.files, kept.manifest.facts) == (first.files, first.manifest.facts)
    for dates in (march(2), None):
        again = logs_of(log, tmp_path / "run", dates=dates, nightly=True)
        assert again.files == logs_of(log, tmp_path / "fresh").files
        assert again.manifest.facts["sources"]["2026-03-03"] == first.manifest.facts["sources"]["2026-03-03"]
        assert "query 2" in again.column("query")


def test_a_day_that_is_read_again_gives_the_same_bytes(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2, 3)
    first = logs_of(log, tmp_path / "run")
    changed = log / "date=2026-03-02/a.csv"
    os.utime(changed, (1, 1))
    assert logs_of(log, tmp_path / "run", nightly=True).manifest.facts["sources"] == first.manifest.facts["sources"]
    changed.write_bytes(changed.read_bytes() + b"\n")
    again = logs_of(log, tmp_path / "run", nightly=True)
    assert again.files == first.files
    assert again.manifest.facts["sources"] != first.manifest.facts["sources"]


def test_a_run_that_failed_half_way_goes_on(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2, 3)
    write(log / "date=2026-03-04/a.csv", "nothing,of,use\n1,2,3\n")
    with pytest.raises(InputError, match="no column for the timestamp"):
        logs_of(log, tmp_path / "run")
    units = list((tmp_path / "run/progress/ingest_logs").iterdir())
    parts = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run/tables/impressions").iterdir()}
    assert (len(units), len(parts)) == (2, 4)
    log_of_days(log, 4)
    got = logs_of(log, tmp_path / "run")
    assert got.files == logs_of(log, tmp_path / "fresh").files
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run/tables/impressions").iterdir()}
    assert parts.items() <= after.items()


def test_too_many_rejects_stay_too_many(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2)
    for share in (1, 0.1, 0.1):
        if share == 1:
            logs_of(log, tmp_path / "run", ingest={"max_reject_share": share})
            log_of_days(log, 3)
            continue
        with pytest.raises(
            TooManyRejects, match=r"1 of 7 rows.*missing timestamp: 1, such as date=2026-03-03/a\.csv:8"
        ):
            logs_of(log, tmp_path / "run", nightly=True, ingest={"max_reject_share": share})
    assert len(logs_of(log, tmp_path / "run", nightly=True, ingest={"max_reject_share": 0.2}).rows) == 12


def test_a_tighter_bound_is_for_what_was_read_before_where_nothing_is_new(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2)
    before = logs_of(log, tmp_path / "run", ingest={"max_reject_share": 0.2})
    with pytest.raises(TooManyRejects, match=r"1 of 7 rows.*more than 10%"):
        logs_of(log, tmp_path / "run", nightly=True, ingest={"max_reject_share": 0.1})
    again = logs_of(log, tmp_path / "run", nightly=True, ingest={"max_reject_share": 0.15})
    assert again.files == before.files


def test_a_day_without_a_row_is_no_error_beside_others(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2)
    write(log / "date=2026-03-03/a.csv", HEADER)
    write(log / "date=2026-03-04/a.csv", "")
    got = logs_of(log, tmp_path / "run")
    assert list(got.manifest.facts["sources"]) == ["2026-03-02", "2026-03-03", "2026-03-04"]
    assert len(logs_of(log, tmp_path / "run", nightly=True).rows) == 6


@pytest.mark.slow
def test_the_sample(tmp_path: Path) -> None:
    got = logs_of(SAMPLE / "impressions", tmp_path / "run", ingest={"max_reject_share": 0})
    assert list(got.manifest.facts["days"]) == [f"2026-03-{day:02d}" for day in range(1, 11)]
    assert (len(got.rows), len(set(got.column("tenant")))) == (12123, 2)
    searched = {(row["tenant"], row["search_id"]): row["query_id"] for row in got.rows}
    assert len(searched) == len({(*key, query) for key, query in searched.items()})
    nightly: Mined | None = None
    for day in range(1, 11):
        nightly = logs_of(SAMPLE / "impressions", tmp_path / "nights", dates=march(day), nightly=True)
    assert nightly
    assert nightly.files == got.files
    assert sorted(Run(str(tmp_path / "nights")).store.sizes("tables/impressions")) == sorted(got.files["impressions"])


@pytest.mark.slow
def test_a_log_on_s3_gives_the_bytes_of_a_local_one(tmp_path: Path, bucket: str) -> None:
    store = Store(f"{bucket}/log")
    names = (
        "date=2026-03-01/a.csv",
        "date=2026-03-02/b.csv",
        "date=2026-03-02/_SUCCESS",
        ".hidden/date=2026-03-03/a.csv",
    )
    for number, name in enumerate(names, 1):
        write(tmp_path / "log" / name, day_of(min(number, 2)))
        store.write(name, day_of(min(number, 2)).encode())
    local = logs_of(tmp_path / "log", tmp_path / "local")
    remote = logs_of(f"{bucket}/log", f"{bucket}/run")
    assert remote.files == local.files
    assert remote.manifest.facts["days"] == local.manifest.facts["days"]
    store.delete("date=2026-03-01/a.csv")
    store.write("date=2026-03-04/a.csv", day_of(4).encode())
    again = logs_of(f"{bucket}/log", f"{bucket}/run", nightly=True, dates=[date(2026, 3, 4)])
    assert list(again.manifest.facts["days"]) == ["2026-03-01", "2026-03-02", "2026-03-04"]
    assert len(logs_of(f"{bucket}/log/date=2026-03-04/a.csv", tmp_path / "one").rows) == 1
    for name in ("date=2026-03-02/b.csv", "date=2026-03-04/a.csv"):
        store.delete(name)
    assert len(logs_of(f"{bucket}/log", f"{bucket}/run", nightly=True).rows) == 3


def test_errors_name_the_object(tmp_path: Path, bucket: str) -> None:
    with pytest.raises(InputError, match=r"s3://bucket/some/prefix/log contains no impressions"):
        logs_of(f"{bucket}/log", tmp_path / "run")
    Store(f"{bucket}/log").write("date=2026-03-01/a.csv", b"a,b\n1,2\n")
    with pytest.raises(InputError, match=r"^s3://bucket/some/prefix/log/date=2026-03-01/a\.csv has no column"):
        logs_of(f"{bucket}/log", tmp_path / "run")
    with pytest.raises(InputError, match=r"s3://nowhere/log"):
        logs_of("s3://nowhere/log", tmp_path / "run")


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
            "user_id": [draw.choice([None, "u", "v"]) for _ in ids],
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(columnar, "MAX_BATCH_ROWS", 61), (staging, "BATCH_ROWS", 2048), (pieces, "PIECE_BYTES", 1000)],
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
    monkeypatch.setattr("darklode.pipeline.ingest.logs.PART_ROWS", 1024)
    got = logs_of(tmp_path / "2026-03-01.parquet", tmp_path / "run")
    assert [part.rows for part in got.manifest.outputs["impressions"]] == [1024, 1024, 952]
    assert got.manifest.facts["days"] == {"2026-03-01": [0, 1, 2]}
    assert got.rows == whole.rows
