"""Times of search logs: zones, clocks that change, and events that come late."""

from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.ingest.timestamps import (
    AMBIGUOUS_TIMESTAMP,
    TIMESTAMP_OUT_OF_RANGE,
    UNREADABLE_TIMESTAMP,
    read_times,
)
from helpers.ingesting import write
from helpers.log_ingesting import HEADER, at, logs_of


def log(*times: str) -> str:
    return HEADER + "".join(f"s,{time},a,d{place},{place + 1},0\n" for place, time in enumerate(times))


@pytest.mark.parametrize("beside", ["2026-07-01T00:00:00Z", "2026-07-01T00:00:00", "1782864000"])
@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-03-01 00:30:00", at(23, 30, 28, 2)),
        ("2026-07-01T00:30:00", at(22, 30, 30, 6)),
        ("2026-07-01T00:30:00+05:30", at(19, 0, 30, 6)),
        ("2026-07-01T00:30:00Z", at(0, 30, 1, 7)),
        ("1782865800", at(0, 30, 1, 7)),
        ("1782865800000", at(0, 30, 1, 7)),
        ("1782865800.5", at(0, 30, 1, 7).replace(microsecond=500_000)),
        ("2026-03-29T02:30:00", at(1, 0, 29)),  # skipped by the clock: the moment of the change
        ("2026-10-25T02:30:00", at(0, 30, 25, 10)),  # shown twice: the earlier
    ],
)
def test_times_without_a_zone_are_local(tmp_path: Path, text: str, beside: str, time: datetime) -> None:
    path = write(tmp_path / "log.csv", log(text, beside))
    got = logs_of(path, tmp_path / "run", time_zone="Europe/Berlin")
    (row,) = (row for row in got.rows if row["position"] == 1)
    assert row["timestamp"] == time
    assert len(got.rows) == 2


def test_naive_times_of_parquet_are_local(tmp_path: Path) -> None:
    times = [datetime(2026, 7, 1, 0, 30), datetime(2026, 3, 29, 2, 30)]
    table = pa.table({"timestamp": times, "query": ["a"] * 2, "doc_id": ["d"] * 2, "clicked": [True] * 2})
    pq.write_table(table, tmp_path / "log.parquet")
    got = logs_of(tmp_path / "log.parquet", tmp_path / "run", time_zone="Europe/Berlin")
    assert got.column("timestamp") == [at(1, 0, 29), at(22, 30, 30, 6)]


def test_an_unknown_zone_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", log("2026-03-01T00:00:00"))
    with pytest.raises(SettingsError, match=r"logs\.time_zone 'Europe/Belin'"):
        logs_of(path, tmp_path / "run", time_zone="Europe/Belin")


def test_times_far_away_do_not_stop_the_run(tmp_path: Path) -> None:
    far = ["0001-01-01T00:00:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-05:00", "1969-12-31T23:59:59Z", "99"]
    edges = ["1989-12-31T23:59:59Z", "1990-01-01T00:00:00Z", "2100-12-31T23:59:59Z", "2101-01-01T00:00:00Z"]
    path = write(tmp_path / "log.csv", log(*far, *edges))
    got = logs_of(path, tmp_path / "run")
    assert [row["timestamp"].isoformat()[:10] for row in got.rows] == ["1990-01-01", "2100-12-31"]
    assert sorted(got.reasons, key=lambda reject: reject[1] or 0) == [
        (TIMESTAMP_OUT_OF_RANGE, 2),
        (TIMESTAMP_OUT_OF_RANGE, 3),
        (UNREADABLE_TIMESTAMP, 4),  # year 10000 in UTC
        (TIMESTAMP_OUT_OF_RANGE, 5),
        (UNREADABLE_TIMESTAMP, 6),
        (TIMESTAMP_OUT_OF_RANGE, 7),
        (TIMESTAMP_OUT_OF_RANGE, 10),
    ]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31", "0001-01-01T00:00:00+14:00", "9999-12-31 23:59:59-12:00"])
def test_a_far_time_is_a_reject_in_any_zone(text: str, zone: str) -> None:
    for beside in ("2026-03-01T10:00:00Z", "2026-03-01T10:00:00", "1782865800"):
        times, faults = read_times(pa.array([text, beside]), zone)
        assert [time is None for time in times.to_pylist()] == [True, False]
        assert np.logical_or.reduce([hit for _, hit in faults]).tolist() == [True, False]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_far_timestamp_of_parquet_is_no_other_time(unit: str) -> None:
    values = pa.array([2**62, -(2**62), None], pa.int64()).cast(pa.timestamp(unit))
    times, faults = read_times(values)
    assert times.null_count == 3
    assert [(reason, hit.tolist()) for reason, hit in faults] == [(TIMESTAMP_OUT_OF_RANGE, [True, True, False])]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2024010110", AMBIGUOUS_TIMESTAMP),
        ("2024010110.0", AMBIGUOUS_TIMESTAMP),
        ("2024123123", AMBIGUOUS_TIMESTAMP),
        ("2024013210", None),  # no such day: seconds
        ("20240101", None),
        ("2024-01-01t10:00", None),
        ("20240101110", UNREADABLE_TIMESTAMP),
        ("202401011000", UNREADABLE_TIMESTAMP),
        ("20240101100000", UNREADABLE_TIMESTAMP),
        ("202401011003000", UNREADABLE_TIMESTAMP),
        ("2024-01-01510:00", UNREADABLE_TIMESTAMP),
        ("2024-01-01_10:00", UNREADABLE_TIMESTAMP),
    ],
)
def test_digits_are_read_where_they_mean_one_time(text: str, reason: str | None) -> None:
    times, faults = read_times(pa.array([text]))
    assert [name for name, hit in faults if hit[0]] == ([reason] if reason else [])
    assert (times[0].as_py() is None) == (reason is not None)


def test_events_may_come_a_few_days_late(tmp_path: Path) -> None:
    days = [f"2026-03-{day:02d}T12:00:00Z" for day in (6, 7, 8, 9, 10, 11, 12, 13)]
    write(tmp_path / "log/date=2026-03-10/a.csv", log(*days))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    assert [row["timestamp"].day for row in got.rows] == [8, 9, 10, 11]
    assert {reason for reason, _ in got.reasons} == {"outside its partition's days"}
    assert list(got.manifest.facts["days"]) == ["2026-03-08", "2026-03-09", "2026-03-10", "2026-03-11"]
    later = logs_of(tmp_path / "log", tmp_path / "other", max_late_days=0)
    assert [row["timestamp"].day for row in later.rows] == [10, 11]


@pytest.mark.parametrize(("zone", "day"), [("Asia/Tokyo", 9), ("America/Los_Angeles", 11)])
def test_a_local_day_reaches_into_its_neighbours(tmp_path: Path, zone: str, day: int) -> None:
    write(tmp_path / "log/2026-03-10.csv", log("2026-03-10T00:30:00", "2026-03-10T23:30:00"))
    got = logs_of(tmp_path / "log", tmp_path / "run", time_zone=zone, max_late_days=0)
    assert {row["timestamp"].day for row in got.rows} == {10, day}
    assert got.rejects == []
