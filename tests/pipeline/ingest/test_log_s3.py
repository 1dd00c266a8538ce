"""Search logs below an `s3://` prefix."""

from datetime import date
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import InputError
from helpers.ingesting import write
from helpers.log_ingesting import day_of, logs_of


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
    with pytest.raises(InputError, match=r"s3://bucket/some/prefix/log holds no impressions"):
        logs_of(f"{bucket}/log", tmp_path / "run")
    Store(f"{bucket}/log").write("date=2026-03-01/a.csv", b"a,b\n1,2\n")
    with pytest.raises(InputError, match=r"^s3://bucket/some/prefix/log/date=2026-03-01/a\.csv has no column"):
        logs_of(f"{bucket}/log", tmp_path / "run")
    with pytest.raises(InputError, match=r"s3://nowhere/log"):
        logs_of("s3://nowhere/log", tmp_path / "run")
