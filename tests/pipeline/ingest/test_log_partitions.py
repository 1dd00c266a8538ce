"""The days of a log: how they are told apart, read once, replaced, and kept when their files are gone."""

import os
import shutil
from datetime import date
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import InputError, TooManyRejects
from darklode.pipeline.ingest.log_partitions import date_in
from helpers.ingesting import write
from helpers.log_ingesting import HEADER, Mined, day_of, logs_of
from helpers.runs import SAMPLE


def march(*days: int) -> list[date]:
    return [date(2026, 3, day) for day in days]


@pytest.mark.parametrize(
    "name",
    [
        "date=2026-03-01/part-0.csv",
        "2026-03-01/a.csv",
        "2026/03/01/a.csv",
        "dt=20260301/a.csv",
        "year=2026/month=03/day=01/a.csv",
        "log-2026-03-01.csv",
        "20260301.csv",
        "us/log_20260301T0500.csv.gz",
        "date=2026-03-01/part-20991231.csv",
        "run-20261345/2026-03-01.csv",
    ],
)
def test_a_path_names_a_day(name: str) -> None:
    assert date_in(name) == date(2026, 3, 1)


@pytest.mark.parametrize(
    "name",
    "a.csv 2026-02-30/a.csv 2026-13-01.csv 12345678.csv part-00010203.csv 120260301.csv 2026/3/1/a.csv 2026/03/01.csv "
    "v2026-03-011.csv".split(),
)
def test_what_is_no_day_is_none(name: str) -> None:
    assert date_in(name) is None


def test_files_of_a_day_are_one_partition_and_those_beside_them_no_log(tmp_path: Path) -> None:
    for name in ("date=2026-03-01/b.csv", "date=2026-03-01/a.csv", "more/20260301.csv", "2026-02-30/a.csv", "z.csv"):
        write(tmp_path / "log" / name, day_of(1))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    assert list(got.manifest.facts["sources"]) == ["2026-03-01"]
    assert got.manifest.facts["days"] == {"2026-03-01": [0]}
    assert [part.rows for part in got.manifest.outputs["impressions"]] == [3]
    assert got.manifest.funnel[0].dropped == {"not a log format": 2}


def test_files_without_a_day_are_a_partition_each(tmp_path: Path) -> None:
    for name in ("2026-02-30/a.csv", "z.csv"):
        write(tmp_path / "log" / name, day_of(1))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    assert list(got.manifest.facts["sources"]) == ["2026-02-30/a.csv", "z.csv"]
    assert got.manifest.facts["days"] == {"2026-03-01": [0, 1]}


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
    with pytest.raises(InputError, match="partition of 2026-03-05; the nearest there are: 2026-03-02, 2026-03-03, 2"):
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
    with pytest.raises(InputError, match=r"2026-03-02 has to be read again.*gone from"):
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


def test_a_touched_day_gives_the_same_bytes(tmp_path: Path) -> None:
    log = log_of_days(tmp_path / "log", 2, 3)
    first = logs_of(log, tmp_path / "run")
    os.utime(log / "date=2026-03-02/a.csv", (1, 1))
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
