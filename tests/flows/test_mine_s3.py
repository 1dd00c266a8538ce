"""`darklode mine` with its log and its run on S3, against an S3 server on loopback."""

import os
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from helpers.commands import (
    DARKLODE,
    Environment,
    built,
    mine_command,
    mine_without_prefect,
    one_line,
    run_inside,
    tables_of,
)
from helpers.runs import SAMPLE
from helpers.s3_server import KEYS, enter, filesystem, s3_server

pytestmark = pytest.mark.server

LOG, OUT = "s3://clicks/search/log", "s3://clicks/some/run"


@pytest.fixture(scope="module")
def s3(served: Environment) -> Iterator[Environment]:
    """The environment of a user with an S3 server and a bucket that holds the sample's log."""
    with s3_server("clicks") as environment:
        logs = str(SAMPLE / "impressions")
        pafs.copy_files(logs, path_of(LOG), pafs.LocalFileSystem(), filesystem(environment))
        yield dict(served) | environment


def path_of(url: str) -> str:
    return url.removeprefix("s3://")


def fetched(environment: Environment, folder: Path) -> Path:
    """The run, copied to a folder."""
    folder.mkdir()
    pafs.copy_files(path_of(OUT), str(folder), filesystem(dict(environment)), pafs.LocalFileSystem())
    return folder


def test_a_second_night_on_s3_is_refused_and_told_who_writes(s3: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, dict(s3))
    with Run(OUT).lock():
        second = run_inside(mine_command(OUT, logs=LOG), s3)
    owner = rf"another process \(\S+, PID {os.getpid()}, since \S+\) is writing to {OUT}; wait for it or choose another"
    one_line(second, owner)
    assert Run(OUT).manifests() == {}


@pytest.mark.slow
def test_nights_from_s3_to_s3_end_like_local_ones(s3: Environment, tmp_path: Path) -> None:
    built(mine_command(OUT, "--from", "2026-03-01", "--to", "2026-03-02", logs=LOG), s3)
    printed = built(mine_command(OUT, "--date", "2026-03-03", logs=LOG), s3)
    assert "\nnew or changed in the log: 2026-03-03\n" in printed
    assert f" {OUT}/tables/triplets/\n" in printed
    local, days = tmp_path / "local", [date(2026, 3, number) for number in (1, 2, 3)]
    mine_without_prefect(local, load_settings(), days, logs=SAMPLE / "impressions")
    remote = fetched(s3, tmp_path / "remote")
    tables = {name: data for name, data in tables_of(remote).items() if not name.startswith("funnel/")}
    assert tables == tables_of(local)
    assert len([name for name in tables if name.startswith("triplets/tenant-")]) > 5

    shown = run_inside([DARKLODE, "status", OUT], s3)
    assert (shown.code, shown.err) == (0, "")
    assert re.search(r"^ingest_logs +the log's files changed", shown.out, re.M)  # the days that were not asked for yet
    assert shown.out.count(" up to date ") == 15

    files = [path for path in remote.rglob("*") if path.is_file()]
    told = [KEYS["AWS_SECRET_ACCESS_KEY"].encode(), s3["AWS_ENDPOINT_URL"].encode()]
    assert not [path for path in files if any(secret in path.read_bytes() for secret in told)]
