"""The daily files of past months become one file; what is read, and what is computed again, stays the same."""

import shutil
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.dataset import FileSystemDataset

from darklode.pipeline.base.artifacts import Manifest, Output, Run, Stage, Tables, unwritten_files
from darklode.pipeline.base.artifacts.merged_files import is_small, month_folder, own_partition
from darklode.pipeline.base.artifacts.parquet_writer import GROUP_ROWS, TABLE_GROUP_ROWS
from darklode.pipeline.base.artifacts.verify import verify
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.tables import TABLES
from helpers.runs import execute, read
from helpers.staged import fail

STAGE = Stage("splits", 1, (), ("query_keys",))
FIRST = date(2026, 1, 28)
DAYS = {(FIRST + timedelta(number)).isoformat(): f"version {number}" for number in range(8)}  # 4 days of each month


def keys(day: str, version: str, rows: int = 3) -> pa.Table:
    columns = {"date": [date.fromisoformat(day)] * rows, "place": pa.array(range(rows), pa.int32())}
    return TABLES["query_keys"].rows(columns | {"key": pa.array([hash_of(version) + n for n in range(rows)], KEY)})


KEY = TABLES["query_keys"].schema.field("key").type


def hash_of(version: str) -> int:
    return sum(version.encode())


def mine(run: Run, days: Mapping[str, str], *, folders: bool = False, worked: list[str] | None = None) -> Manifest:
    """One unit per day, as the stages of mining have them."""

    def work(_tables: Tables, output: Output) -> None:
        for day, version in sorted(days.items()):
            with output.unit(day, version) as unit:
                if not unit.done:
                    output.write("query_keys", keys(day, version), day if folders else "")
                    if worked is not None:
                        worked.append(day)

    return execute(run, STAGE, work)


def files_of(run: Run) -> dict[str, bytes]:
    root = Path(run.store.url) / "tables"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def expected(days: Iterable[tuple[str, str]]) -> list[dict[str, object]]:
    return pa.concat_tables(keys(day, version) for day, version in sorted(days)).to_pylist()


@pytest.mark.parametrize("folders", [False, True])
def test_nights_and_one_run_over_everything_end_with_the_same_files(run: Run, tmp_path: Path, folders: bool) -> None:
    for n_days in range(1, len(DAYS) + 1):
        days = dict(list(DAYS.items())[:n_days])
        worked: list[str] = []
        mine(run, days, folders=folders, worked=worked)
        assert worked == [max(days)]
        assert read(run, "query_keys") == expected(days.items())
    once = Run(str(tmp_path / "once"))
    mine(once, DAYS, folders=folders)
    assert files_of(run) == files_of(once)
    names = [name.rpartition("-")[0] for name in sorted(files_of(run))]
    days_of_february = [f"query_keys/2026-02-0{day}/splits-00000" for day in range(1, 5)]
    of_january = "query_keys/2026-01/splits-202601" if folders else "query_keys/splits-202601"
    singles = days_of_february if folders else [f"query_keys/splits-0000{number}" for number in range(4, 8)]
    assert sorted(names) == sorted([of_january, *singles])


@pytest.mark.parametrize("change", ["replaced", "late", "discarded", "the month is not over any more"])
def test_a_changed_day_of_a_past_month_makes_its_file_new(run: Run, tmp_path: Path, change: str) -> None:
    before = {day: version for day, version in DAYS.items() if change != "late" or day != "2026-01-29"}
    after = {
        "replaced": DAYS | {"2026-01-29": "another version"},
        "late": DAYS,
        "discarded": {day: version for day, version in DAYS.items() if day != "2026-01-29"},
        "the month is not over any more": {day: version for day, version in DAYS.items() if day < "2026-02"},
    }[change]
    worked: list[str] = []
    mine(run, before)
    mine(run, after, worked=worked)
    assert worked == ([] if after.keys() < DAYS.keys() else ["2026-01-29"])
    assert read(run, "query_keys") == expected(after.items())
    once = Run(str(tmp_path / "once"))
    mine(once, after)
    assert files_of(run) == files_of(once)
    assert [check.problem for check in verify(run) if check.problem] == []


def test_some_days_of_a_merged_file_are_read_alone(run: Run) -> None:
    mine(run, DAYS)
    tables = run.tables("query_keys")
    by_day = tables.by_day("query_keys")
    assert list(by_day) == list(DAYS)
    chosen = ["2026-01-29", "2026-01-31", "2026-02-02"]
    some = tables.with_parts("query_keys", [part for day in chosen for part in by_day[day]])
    rows = expected((day, DAYS[day]) for day in chosen)
    assert some.sql("FROM query_keys ORDER BY date, place").to_pylist() == rows
    assert some.read("query_keys").to_pylist() == rows
    assert [row for batch in some.batches("query_keys") for row in batch.to_pylist()] == rows
    assert [row for day in chosen for part in by_day[day] for row in tables.part(part).to_pylist()] == rows
    chosen_parts = [part for day in chosen for part in by_day[day]]
    assert [row for part in tables.iterate_parts(chosen_parts) for row in part.to_pylist()] == rows
    assert some.rows("query_keys") == len(rows)


def test_only_rows_of_incomplete_files_are_in_memory(run: Run) -> None:
    mine(run, DAYS)
    tables = run.tables("query_keys")
    parts = [part for part in tables.parts("query_keys") if part.day != "2026-01-29"]
    datasets = tables.with_parts("query_keys", parts).dataset("query_keys").children
    assert [dataset.to_table().num_rows for dataset in datasets] == [9, 12]
    assert [isinstance(dataset, FileSystemDataset) for dataset in datasets] == [False, True]


def test_merging_changes_no_fingerprint(run: Run) -> None:
    january = {day: version for day, version in DAYS.items() if day < "2026-02"}
    single = [part.sha256 for part in mine(run, january).outputs["query_keys"]]
    merged = mine(run, DAYS).outputs["query_keys"]
    assert [part.sha256 for part in merged[: len(january)]] == single
    assert len({part.file for part in merged[: len(january)]}) == 1
    assert Run(run.store.url).parts()["query_keys"] == merged


def test_a_damaged_merged_file_is_made_again(run: Run) -> None:
    mine(run, DAYS)
    before = files_of(run)
    part = run.parts()["query_keys"][1]
    path = Path(run.store.path(part.file))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert run.plan(STAGE, {}).reason == f"{part.file} is missing or damaged"
    assert [check.file for check in verify(run) if check.problem] == [part.file]
    with pytest.raises(ArtifactError, match="is missing or damaged"):
        run.tables("query_keys").sql("FROM query_keys")
    worked: list[str] = []
    mine(run, DAYS, worked=worked)
    assert worked == [day for day in DAYS if day < "2026-02"]
    assert files_of(run) == before


def test_work_before_a_failure_is_kept_though_files_wait(run: Run, tmp_path: Path) -> None:
    def work(_tables: Tables, output: Output) -> None:
        for day, version in list(DAYS.items())[:6]:
            with output.unit(day, version):
                output.write("query_keys", keys(day, version))
        fail()

    with pytest.raises(RuntimeError):
        execute(run, STAGE, work)
    worked: list[str] = []
    mine(run, DAYS, worked=worked)
    assert worked == list(DAYS)[6:]
    once = Run(str(tmp_path / "once"))
    mine(once, DAYS)
    assert files_of(run) == files_of(once)


def test_a_copy_from_before_the_old_files_were_deleted_continues(run: Run, tmp_path: Path) -> None:
    """As if killed right after the manifest was written."""
    january = {day: version for day, version in DAYS.items() if day < "2026-02"}
    mine(run, january)
    old = Path(run.store.url)
    copy = tmp_path / "copy"
    shutil.copytree(old, copy)
    mine(run, DAYS)
    shutil.copytree(old, copy, dirs_exist_ok=True)  # new files and manifest, and the old files
    killed = Run(str(copy))
    assert read(killed, "query_keys") == expected(DAYS.items())
    mine(killed, DAYS)
    assert files_of(killed) == files_of(run)


def test_a_kill_while_old_files_are_deleted_repeats_no_work(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwritten_files, "MAX_SECONDS", 0.0)  # every unit leaves a file and a record
    delete = run.store.delete

    def stop_at_a_part(name: str) -> None:
        delete(name)
        if name.startswith("tables/"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run.store, "delete", stop_at_a_part)
        with pytest.raises(KeyboardInterrupt):
            mine(run, DAYS)
    worked: list[str] = []
    mine(run, DAYS | {"2026-02-05": "a new day"}, worked=worked)
    assert worked == ["2026-02-05"]


def test_units_of_equal_work_keep_their_own_rows(run: Run, tmp_path: Path) -> None:
    """Two units with the same name and basis, as of two equal parts of an input."""
    days = [*list(DAYS)[:2], list(DAYS)[1], *list(DAYS)[2:]]

    def mine_twice(run: Run, n_days: int) -> list[tuple[str, int]]:
        def work(_tables: Tables, output: Output) -> None:
            for day in days[:n_days]:
                with output.unit(day, "") as unit:
                    if not unit.done:
                        output.write("query_keys", keys(day, day))

        return [(part.file, part.first_row) for part in execute(run, STAGE, work).outputs["query_keys"]]

    for n_days in range(1, len(days)):
        mine_twice(run, n_days)
    ranges = mine_twice(run, len(days))
    assert ranges == mine_twice(Run(str(tmp_path / "once")), len(days))
    assert [first_row for _, first_row in ranges[:5]] == [0, 3, 6, 9, 12]
    assert read(run, "query_keys") == expected((day, day) for day in days)


@pytest.mark.parametrize(
    ("partition", "month"),
    [
        ("", ""),
        ("2026-03-01", "2026-03"),
        ("2026-03", "2026-03"),
        ("tenant-a/date-2026-03-01/source-s", "tenant-a/date-2026-03/source-s"),
        ("tenant-2026-03-01/date-2026-04-02/split-train", "tenant-2026-03-01/date-2026-04/split-train"),
        ("tenant-2026-03-01", None),
        ("train", None),
    ],
)
def test_merged_files_are_in_the_folder_of_the_month(partition: str, month: str | None) -> None:
    assert month_folder(partition) == month


def test_large_and_undated_parts_are_not_merged() -> None:
    assert is_small(TABLE_GROUP_ROWS // 4, "2026-03-01", "")
    assert not is_small(TABLE_GROUP_ROWS // 4 + 1, "2026-03-01", "")
    assert not is_small(GROUP_ROWS // 4 + 1, "2026-03-01", "tenant-a/date-2026-03-01")
    assert not is_small(0, "2026-03-01", "")
    assert not is_small(3, None, "")


def test_a_merged_part_knows_its_own_folder(run: Run) -> None:
    parts = mine(run, DAYS, folders=True).outputs["query_keys"]
    assert [own_partition(part) for part in parts] == list(DAYS)
