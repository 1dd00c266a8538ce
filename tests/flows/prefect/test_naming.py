"""Names of flow runs and keys of artifacts: a name never makes a run fail, and no two folders share a key."""

import re
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from darklode.flows.prefect.naming import artifact_key, run_name

DUE = datetime(2026, 11, 22, 3, tzinfo=UTC)
DAYS = {"first": date(2026, 3, 1), "last": date(2026, 3, 10)}


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"out": "/srv/search/runs/mined"}, "runs/mined 2026-11-22"),
        ({"out": "s3://bucket/a/mined/"}, "a/mined 2026-11-22"),
        ({"out": "run", **DAYS}, "run 2026-03-01 to 2026-03-10"),
        ({"out": "run", "first": "2026-03-01", "last": "2026-03-01"}, "run 2026-03-01"),
        ({"out": None, "config": "/srv/nowhere.yaml", "logs": None}, "srv/nowhere.yaml 2026-11-22"),
        ({"out": None, "config": None}, "run 2026-11-22"),
    ],
)
def test_a_flow_run_is_named_after_folder_and_day(parameters: dict[str, object], name: str) -> None:
    assert run_name(parameters, DUE) == name


def test_the_folder_is_the_configs_where_none_is_given(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("paths: {docs: d, queries: q, logs: l, out: runs/benchmark, mined: runs/mined}\n")
    assert run_name({"out": None, "config": str(file)}, DUE) == "runs/benchmark 2026-11-22"
    assert run_name({"out": None, "config": str(file), "logs": None}, DUE) == "runs/mined 2026-11-22"
    assert run_name({"out": "x/y", "config": str(file), "logs": None}, DUE) == "x/y 2026-11-22"


def test_keys_are_as_prefect_takes_them_and_of_one_folder() -> None:
    places = ["/a/runs/mined", "/b/runs/mined", "s3://b/a/runs_mined", "/Ü/☃", "runs/mined"]
    keys = [artifact_key(place) for place in places]
    assert len(set(keys)) == len(places)
    assert all(re.fullmatch(r"[a-z0-9-]+", key) for key in keys)
    assert keys[0].startswith("runs-mined-")
