"""A run: what stands, what has to be redone and why, and that a kill on the way changes nothing in the end."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from darklode.pipeline.base.artifacts import Manifest, Output, Plan, Run, Stage, Tables
from darklode.pipeline.base.artifacts.store import LOCK_FILE
from darklode.pipeline.base.artifacts.verify import verify
from darklode.pipeline.base.duckdb_views import query
from darklode.pipeline.base.errors import ArtifactError
from helpers.runs import PYTHONPATH, put
from helpers.staged import STAGE, UNITS, build, fail, killed, qrels, state

READER = Stage("reader", 1, ("qrels",), ("pool",))
SETTINGS = {"depth": 60, "names": ("a", "b")}


def leave(_tables: Tables, _output: Output) -> None:
    """Write nothing."""


def plan(run: Run, stage: Stage = READER, settings: dict[str, Any] = SETTINGS, **external: str) -> Plan:
    return run.plan(stage, settings, external)


def ready(run: Run) -> Run:
    """A run whose qrels and reader are complete."""
    put(run, "qrels", qrels("q1"))
    run.execute(plan(run, files="1"), leave)
    return run


CHANGES: dict[str, tuple[Callable[[Run], Plan], str]] = {
    "another setting": (lambda run: plan(run, settings=SETTINGS | {"depth": 30}, files="1"), "depth: 60 → 30"),
    "a new setting": (lambda run: plan(run, settings=SETTINGS | {"rule": "fused"}, files="1"), "rule: None → 'fused'"),
    "a setting less": (lambda run: plan(run, settings={"depth": 60}, files="1"), "names: ['a', 'b'] → None"),
    "another version": (lambda run: plan(run, replace(READER, version=2), files="1"), "Darklode's own code changed"),
    "other files": (lambda run: plan(run, files="2"), "files changed"),
    "files no more": (plan, "files changed"),
    "another input": (lambda run: put(run, "qrels", qrels("q2")) or plan(run, files="1"), "qrels changed"),
    "input in another order": (
        lambda run: put(run, "qrels", qrels("q1").take([2, 1, 0])) or plan(run, files="1"),
        "qrels changed",
    ),
    "two things": (lambda run: plan(run, settings=SETTINGS | {"depth": 1}, files="2"), "files changed; depth: 60 → 1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_can_change_the_output_is_a_reason_to_redo(run: Run, change: str) -> None:
    before = plan(ready(run), files="1")
    changed, reason = CHANGES[change]
    now = changed(run)
    assert (before.is_up_to_date, now.is_up_to_date, now.reason) == (True, False, reason)
    assert now.fingerprint != before.fingerprint
    run.execute(now, leave)
    assert changed(run).is_up_to_date


SAME: dict[str, Callable[[Run], Plan]] = {
    "settings in another order": lambda run: plan(run, settings=dict(reversed(SETTINGS.items())), files="1"),
    "a list for a tuple": lambda run: plan(run, settings=SETTINGS | {"names": ["a", "b"]}, files="1"),
    "the same input, made again": lambda run: put(run, "qrels", qrels("q1")) or plan(run, files="1"),
    "a table that it does not read": lambda run: (
        run.execute(run.plan(Stage("a", 1, (), ("queries",)), {}), leave) and plan(run, files="1")
    ),
    "a run opened again": lambda run: plan(Run(run.store.url), files="1"),
}


@pytest.mark.parametrize("change", SAME)
def test_nothing_else_is_a_reason(run: Run, change: str) -> None:
    before = plan(ready(run), files="1")
    now = SAME[change](run)
    assert (now.is_up_to_date, now.fingerprint, now.inputs) == (True, before.fingerprint, before.inputs)


def test_a_stage_of_another_name_has_another_fingerprint(run: Run) -> None:
    other = plan(ready(run), replace(READER, name="other"), files="1")
    assert other.reason == "not run yet"
    assert other.fingerprint != plan(run, files="1").fingerprint


def test_a_changed_setting_is_told_without_those_that_stayed(run: Run) -> None:
    now = plan(ready(run), settings={"depth": 61, "names": ["a", "b"]}, files="1")
    assert now.reason == "depth: 60 → 61"


def test_consumers_stand_when_their_input_is_remade_alike(run: Run) -> None:
    maker = Stage("maker", 1, (), ("qrels",))

    def made(query: str) -> Callable[[Tables, Output], None]:
        return lambda _, output: output.write("qrels", qrels(query))

    run.execute(run.plan(maker, {}), made("q1"))
    run.execute(plan(run), leave)
    newer = replace(maker, version=2)
    assert not run.plan(newer, {}).is_up_to_date
    run.execute(run.plan(newer, {}), made("q1"))
    assert plan(run).is_up_to_date
    run.execute(run.plan(newer, {"other": 1}), made("q2"))
    assert plan(run).reason == "qrels changed"


@pytest.mark.parametrize("how", ["deleted", "truncated"])
def test_a_damaged_output_is_rebuilt(run: Run, how: str) -> None:
    build(run.store.url)
    before = state(run)
    file = run.parts()["qrels"][4].file
    assert run.plan(STAGE, {}).is_up_to_date
    if how == "deleted":
        run.store.delete(file)
    else:
        run.store.write(file, (run.store.read(file) or b"")[:-7])
    assert run.plan(STAGE, {}).reason == f"{file} is missing or damaged"
    assert build(run.store.url) == ["u2"]
    assert (run.plan(STAGE, {}).is_up_to_date, state(run)) == (True, before)


def test_an_exception_leaves_the_complete_tables_and_is_taken_up_where_it_stopped(run: Run, tmp_path: Path) -> None:
    build(run.store.url, {"old": "old"})
    with pytest.raises(RuntimeError, match="stopped"):
        build(run.store.url, stop_at="u2", stop=fail)
    assert run.tables("qrels").read("qrels")["query_id"].unique().to_pylist() == ["old a", "old b"]
    assert build(run.store.url) == ["u2", "u3", "u4"]
    build(str(tmp_path / "undisturbed"))
    assert state(run) == state(Run(str(tmp_path / "undisturbed")))
    assert run.store.sizes("progress/judge") == {}


DIE = {
    "in the middle of a unit": "staged.build(sys.argv[1], stop_at='u3', stop=kill)",
    "between the parts and the manifest": """
write = staged.Run(sys.argv[1]).store.__class__.write
def until_manifest(self, name, data): kill() if name.startswith('manifests/') else write(self, name, data)
staged.Run(sys.argv[1]).store.__class__.write = until_manifest
staged.build(sys.argv[1])
""",
    "in the middle of writing a part": """
named = []
def flush(file):
    if 'parquet' in os.readlink(f'/proc/self/fd/{file}'): named.append(file)
    if len(named) == 7: kill()
os.fsync = flush
staged.build(sys.argv[1])
""",
    "before tidying": """
staged.Run.delete_old_parts = kill
staged.build(sys.argv[1])
""",
}


@pytest.mark.parametrize("moment", DIE)
def test_a_killed_stage_ends_like_an_undisturbed_one(run: Run, tmp_path: Path, moment: str) -> None:
    killed(f"from helpers import staged\n{DIE[moment]}", run.store.url)
    complete = moment == "before tidying"
    assert (run.manifest(STAGE) is not None) == complete
    if complete:
        manifest = run.manifest(STAGE)
        assert manifest is not None
        run.delete_old_parts(manifest)
    else:
        assert "u0" not in build(run.store.url)
    build(str(tmp_path / "undisturbed"))
    assert state(run) == state(Run(str(tmp_path / "undisturbed")))
    assert run.store.sizes("progress/judge") == {}


def test_tidying_takes_what_is_stale_of_the_own_stage_alone(run: Run) -> None:
    other = Stage("judge-2", 1, (), ("qrels",))
    run.execute(run.plan(other, {}), lambda _, output: output.write("qrels", qrels("other")))
    kept = set(run.store.sizes("tables/qrels"))
    run.store.write("progress/judge-2/0123456789abcdef.json", b"{}")
    run.store.write("tables/qrels/judge-00000-01234567.parquet", b"stale")
    run.store.write("tables/queries/judge-00007-01234567.parquet", b"of a table that it no longer writes")
    run.store.write("tables/qrels/.judge-00000-01234567.parquet.4711.tmp", b"left by a kill")
    run.store.write("tables/qrels/.judge-2-00000-01234567.parquet.4711.tmp", b"another stage's")
    run.store.write("tables/qrels/notes.txt", b"somebody's")
    build(run.store.url)
    build(run.store.url, {"only": "one"})
    parts = run.parts()["qrels"]
    somebodys = {"tables/qrels/.judge-2-00000-01234567.parquet.4711.tmp", "tables/qrels/notes.txt"}
    assert set(run.store.sizes("tables/qrels")) == {part.file for part in parts} | somebodys
    assert kept < {part.file for part in parts}
    assert run.store.sizes("tables/queries") == {}
    assert set(run.store.sizes("progress/judge-2")) == {"progress/judge-2/0123456789abcdef.json"}


def test_the_manifest_is_written_after_all_that_it_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = run.store.write

    def noted(name: str, data: bytes) -> None:
        written.append(name)
        write(name, data)

    monkeypatch.setattr(run.store, "write", noted)
    manifest = run.execute(run.plan(STAGE, {}), lambda _, output: output.write("qrels", qrels("q")))
    assert written == [manifest.outputs["qrels"][0].file, "manifests/judge.json"]


def test_a_manifest_survives_its_file(run: Run) -> None:
    build(run.store.url)
    manifest = run.manifest(STAGE)
    assert manifest is not None
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert run.manifests() == {"judge": manifest}
    assert manifest.software.keys() >= {"darklode", "pyarrow", "duckdb"}
    assert manifest.rows("qrels") == 5 * 8


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"7", b"{}", b'{"outputs": [], "funnel": []}', b"\xff\x00"]
)
def test_a_damaged_manifest_is_named_with_what_to_do(run: Run, data: bytes) -> None:
    build(run.store.url)
    run.store.write("manifests/judge.json", data)
    for use in (run.manifests, run.parts, lambda: run.plan(STAGE, {}), lambda: build(run.store.url)):
        with pytest.raises(ArtifactError) as damaged:
            use()
        assert run.store.path("manifests/judge.json") in str(damaged.value)
        assert "delete it and run the same command again" in str(damaged.value)
    run.store.delete("manifests/judge.json")
    build(run.store.url)
    assert run.plan(STAGE, {}).is_up_to_date


def test_a_manifest_cut_short_anywhere_is_damaged(run: Run) -> None:
    build(run.store.url)
    data = run.store.read("manifests/judge.json") or b""
    for length in range(0, len(data), 97):
        with pytest.raises(ValueError, match="invalid manifest"):
            Manifest.from_json(data[:length])


def test_a_table_that_is_not_there_yet_is_named(run: Run) -> None:
    put(run, "qrels", qrels("q"))
    with pytest.raises(ArtifactError, match=r"has no table pool, queries yet; run its command to completion"):
        run.tables("qrels", "pool", "queries")
    assert run.tables().rows("qrels") == 3


def test_a_stage_sees_only_the_tables_that_it_reads(run: Run) -> None:
    ready(run)
    seen = []

    def work(tables: Tables, _output: Output) -> None:
        seen.append(tables.rows("qrels"))
        tables.rows("pool")

    with pytest.raises(KeyError):
        run.execute(run.plan(replace(READER, name="nosy"), {}), work)
    assert seen == [3]


def test_a_table_of_several_stages_is_read_in_the_order_of_their_names(run: Run) -> None:
    for name in ("b", "a"):
        stage = Stage(name, 1, (), ("qrels",))
        run.execute(run.plan(stage, {}), lambda _, output, name=name: output.write("qrels", qrels(name)))
    assert run.tables("qrels").read("qrels")["query_id"].to_pylist() == ["a"] * 3 + ["b"] * 3


HOLD = """
import sys, time
from darklode.pipeline.base.artifacts import Run
with Run(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_process_writes_at_a_time_and_a_killed_one_holds_nothing(run: Run) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, run.store.url],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        owner = rf"another process \({socket.gethostname()}, PID {holder.pid}, since 20\S+\) is writing to"
        for _ in range(2):  # being refused changes nothing
            with pytest.raises(ArtifactError, match=f"{owner} {run.store.url}; wait for it"), run.lock():
                pytest.fail("two processes hold one run")
    finally:
        holder.kill()
        holder.communicate()
    with FileLock(Path(run.store.path(LOCK_FILE))):
        message = f"another process is writing to {run.store.url}"  # the owner in the file is the killed one
        with pytest.raises(ArtifactError, match=message), run.lock():
            pytest.fail("two processes hold one run")
    with run.lock():
        pass


def test_the_lock_is_given_back_after_an_error(run: Run) -> None:
    with pytest.raises(RuntimeError), run.lock():
        fail()
    with run.lock(), pytest.raises(ArtifactError), Run(run.store.url).lock():
        pass


@pytest.mark.parametrize("before", ["nothing", "an older result"])
def test_a_stage_that_another_process_finished_meanwhile_is_not_written_over(run: Run, before: str) -> None:
    """As on S3, where nothing locks a run."""
    if before == "an older result":
        run.execute(run.plan(STAGE, {}), lambda _, output: output.write("qrels", qrels("old")))
    winners: list[Manifest] = []

    def overtaken(_tables: Tables, output: Output) -> None:
        output.write("qrels", qrels("mine"))
        other = Run(run.store.url)
        winners.append(other.execute(other.plan(STAGE, {}), lambda _, theirs: theirs.write("qrels", qrels("theirs"))))

    with pytest.raises(
        ArtifactError, match=f"another process has just finished judge in {run.store.url}; run the same"
    ):
        run.execute(run.plan(STAGE, {}), overtaken)
    assert [run.manifest(STAGE)] == winners
    assert run.tables("qrels").read("qrels")["query_id"].unique().to_pylist() == ["theirs"]
    assert run.plan(STAGE, {}).is_up_to_date
    run.execute(run.plan(STAGE, {}), lambda _, output: output.write("qrels", qrels("again")))
    assert set(run.store.sizes("tables/qrels")) == {part.file for part in run.parts()["qrels"]}


def test_a_cleared_table_is_empty_and_everything_stays_up_to_date(run: Run) -> None:
    build(run.store.url)
    run.execute(plan(run), leave)
    size = sum(run.store.sizes("tables/qrels").values())
    run.clear_table(STAGE, "qrels")
    assert run.is_cleared(STAGE, "qrels")
    assert sum(run.store.sizes("tables/qrels").values()) < size / 2
    again = Run(run.store.url)
    assert again.plan(STAGE, {}).is_up_to_date
    assert plan(again).is_up_to_date
    assert not [check.problem for check in verify(again) if check.problem]
    assert again.tables("qrels").rows("qrels") == again.tables("qrels").read("qrels").num_rows == 0
    assert again.tables("qrels").sql("FROM qrels").num_rows == 0
    assert query(again, "SELECT count(*) AS n FROM qrels").to_pylist() == [{"n": 0}]
    before = dict(run.store.sizes("tables/qrels"))
    again.clear_table(STAGE, "qrels")
    assert run.store.sizes("tables/qrels") == before


def test_a_stage_with_a_cleared_table_repeats_all_its_work(run: Run) -> None:
    build(run.store.url)
    whole = state(run)
    run.clear_table(STAGE, "qrels")
    run.forget(STAGE)
    assert build(run.store.url) == list(UNITS)
    assert state(run) == whole
    run.clear_table(STAGE, "qrels")
    run.store.delete(next(iter(run.store.sizes("tables/rejects"))))
    assert build(run.store.url) == list(UNITS), "a unit whose rows are gone is not reused"
    assert state(run) == whole
