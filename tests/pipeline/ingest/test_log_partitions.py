"""The days of a log: how they are told apart, read once, replaced, and kept when their files are gone."""

from datetime import date
from pathlib import Path

import pytest

from darklode.pipeline.ingest.log_partitions import date_in
from helpers.ingesting import write
from helpers.log_ingesting import day_of, logs_of


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
