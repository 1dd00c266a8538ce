"""Every file of a run read again; and single flipped bits, which neither verify nor the plan overlooks."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.base.artifacts.verify import verify
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.tables import REJECTS
from helpers.finished_run import finished_run
from helpers.staged import STAGE, UNITS, build, fail

FLIPS = 120


def wrong(run: Run) -> dict[str, str]:
    return {one.file: one.problem for one in verify(run) if one.problem}


def files(run: Run) -> list[Path]:
    """All tables and manifests."""
    root = Path(run.store.url)
    return sorted(path for name in ("tables", "manifests") for path in (root / name).rglob("*") if path.is_file())


def stages(run: Run) -> list[Stage]:
    """The stages of the run, as it is made for tests."""
    made = run.manifests().items()
    return [Stage(name, 1, (), tuple(table for table in one.outputs if table != REJECTS.name)) for name, one in made]


def answers(run: Run) -> dict[str, pa.Table]:
    with run.tables().open_local() as tables:
        return {name: tables.sql(f"FROM {name} ORDER BY ALL") for name in sorted(run.parts())}


def stand(run: Run, all_stages: list[Stage]) -> bool:
    """Whether the plan says of all stages that they stand."""
    try:
        return all(Run(run.store.url).plan(stage, {}).is_up_to_date for stage in all_stages)
    except ArtifactError:
        return False


def told(run: Run) -> bool:
    """Whether reading every table tells of the damage."""
    try:
        answers(Run(run.store.url))
    except ArtifactError:
        return True
    return False


@pytest.mark.slow
def test_of_120_flipped_bits_none_is_overlooked(run: Run) -> None:
    finished_run(run.store.url)
    made, before = stages(run), answers(run)
    assert stand(run, made)
    assert not wrong(run)
    choices, places = np.random.default_rng(5), files(run)
    for number in range(FLIPS):
        path = places[number % len(places)]
        data = path.read_bytes()
        place, bit = int(choices.integers(len(data))), int(choices.integers(8))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
        where = f"{path.name}, byte {place}, bit {bit}"
        assert [str(path)] == [run.store.path(name) for name in wrong(run)], where
        assert not stand(run, made), where
        assert told(run), where
        path.write_bytes(data)
    assert stand(run, made)
    assert answers(run) == before


@pytest.mark.slow
@pytest.mark.parametrize("place", ["disk", pytest.param("s3", marks=pytest.mark.server)])
def test_what_is_wrong_is_named_with_what_to_do(run: Run, place: str, request: pytest.FixtureRequest) -> None:
    of = run if place == "disk" else Run(request.getfixturevalue("bucket"))
    build(of.store.url)
    assert len(list(verify(of))) == 1 + 15
    assert not wrong(of)
    gone, changed = (of.parts()["qrels"][number].file for number in (2, 4))
    of.store.delete(gone)
    data = of.store.read(changed) or b""
    of.store.write(changed, data[:50] + b"?" + data[51:])
    again = "run the command that wrote it again"
    assert wrong(of) == {gone: f"is missing; {again}", changed: f"is damaged; delete it and {again}"}
    for file in (gone, changed):
        of.store.delete(file)
    assert build(of.store.url) == ["u1", "u2"]
    assert not wrong(of)
    manifest = of.store.read("manifests/judge.json") or b""
    of.store.write("manifests/judge.json", manifest.replace(b'"seconds": ', b'"seconds": 1'))
    said = "is damaged (invalid manifest: its checksum differs); delete it and run the command of this run again"
    assert wrong(of) == {"manifests/judge.json": said}


def test_records_and_parts_of_an_unfinished_stage_are_read_too(run: Run) -> None:
    with pytest.raises(RuntimeError):
        build(run.store.url, stop_at="u3", stop=fail)
    assert (len(list(verify(run))), wrong(run)) == (3 + 9, {})
    record = sorted(run.store.sizes(f"progress/{STAGE.name}"))[1]
    data = run.store.read(record) or b""
    run.store.write(record, data.replace(b'"rows": 3', b'"rows": 2'))
    assert wrong(run) == {record: "is damaged; the next run repeats this unit of work"}
    redone = build(run.store.url)
    assert len(redone) == len(UNITS) - 2
    assert not wrong(run)


def test_a_table_that_was_read_has_a_manifest(run: Run) -> None:
    build(run.store.url)
    run.execute(run.plan(Stage("audit", 1, ("qrels",), ()), {}), lambda _tables, _output: None)
    assert not wrong(run)
    run.store.delete("manifests/judge.json")
    run.store.delete_folder("tables")
    assert wrong(run) == {
        "tables/qrels": "is an input of manifests/audit.json, but no manifest lists it as output; "
        "run the command of this run again"
    }
