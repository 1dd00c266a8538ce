"""The same life of a run on `s3://bucket/prefix`, against an S3 server on loopback."""

from collections.abc import Iterator

import pytest

from darklode.pipeline.base.artifacts import Run, Stage, Store
from darklode.pipeline.base.errors import ArtifactError
from helpers.s3_server import KEYS, enter, make_bucket, s3_server
from helpers.staged import STAGE, UNITS, build, fail, killed, qrels, state

pytestmark = pytest.mark.server

SECRET = KEYS["AWS_SECRET_ACCESS_KEY"].encode()


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3_server() as environment:
        yield environment


@pytest.fixture
def s3(server: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A fresh bucket's URL; keys and server stand in the environment alone."""
    enter(monkeypatch, server)
    bucket = f"bucket-{abs(hash(request.node.name))}"
    make_bucket(server, bucket)
    return f"s3://{bucket}/some/prefix"


def test_files_on_s3_are_like_local_ones(s3: str) -> None:
    store = Store(s3)
    assert store.read("t/a.bin") is None
    assert (store.size("t/a.bin"), store.sizes("t"), store.folders("t")) == (None, {}, [])
    store.delete("t/a.bin")
    store.write("t/a.bin", b"\x00\xff")
    store.write("t/deep/b.bin", b"")
    assert (store.read("t/a.bin"), store.size("t/a.bin")) == (b"\x00\xff", 2)
    assert (store.sizes("t"), store.folders("t"), store.read("t/deep/b.bin")) == ({"t/a.bin": 2}, ["deep"], b"")
    store.delete("t/a.bin")
    assert store.read("t/a.bin") is None
    assert Store(f"{s3}/").url == store.url == s3


def test_a_stage_is_written_read_and_queried(s3: str) -> None:
    run = Run(s3)
    assert run.manifests() == {}
    with run.lock():
        build(s3)
    tables = Run(s3).tables("qrels")
    assert tables.read("qrels")["query_id"].to_pylist()[:8] == ["basis 0 a"] * 3 + ["basis 0 b"] * 5
    assert sum(batch.num_rows for batch in tables.batches("qrels", ["relevance"], rows=3)) == 40
    found = tables.sql("SELECT query_id, count(*) AS n FROM qrels GROUP BY query_id ORDER BY query_id LIMIT 2")
    assert found.to_pylist() == [{"query_id": "basis 0 a", "n": 3}, {"query_id": "basis 0 b", "n": 5}]
    streamed = tables.stream("SELECT query_id FROM qrels ORDER BY query_id", {}, 30)
    assert [piece.num_rows for piece in streamed] == [30, 10]
    assert run.plan(STAGE, {}).is_up_to_date


def test_it_resumes_after_an_exception_and_after_a_kill(s3: str) -> None:
    with pytest.raises(RuntimeError):
        build(f"{s3}/a", stop_at="u1", stop=fail)
    killed("from helpers import staged\nstaged.build(sys.argv[1], stop_at='u3', stop=kill)", f"{s3}/a")
    assert build(f"{s3}/a") == ["u3", "u4"]
    build(f"{s3}/b")
    assert state(Run(f"{s3}/a")) == state(Run(f"{s3}/b"))


def test_it_is_the_same_run_as_on_a_disk(s3: str, run: Run) -> None:
    build(s3)
    build(run.store.url)
    assert state(Run(s3)) == state(run)


@pytest.mark.slow
def test_a_deleted_part_is_rebuilt_and_what_is_stale_is_deleted(s3: str) -> None:
    run = Run(s3)
    other = Stage("judge-2", 1, (), ("qrels",))
    run.execute(run.plan(other, {}), lambda _, output: output.write("qrels", qrels("other")))
    build(s3)
    before, gone = state(run), run.parts()["qrels"][-1].file
    build(s3, {"only": "one"})
    build(s3)
    assert state(run) == before
    mine = run.manifests()["judge"].outputs["qrels"][3].file
    run.store.delete(mine)
    assert run.plan(STAGE, {}).reason == f"{mine} is missing or damaged"
    assert build(s3) == ["u1"]
    assert state(run) == before
    assert run.store.sizes("progress/judge") == {}
    assert "judge-2" in gone
    assert run.plan(other, {}).is_up_to_date


def test_a_part_that_was_cut_off_is_made_again(s3: str) -> None:
    build(s3)
    run = Run(s3)
    before, cut = state(run), run.parts()["qrels"][3].file
    run.store.write(cut, (run.store.read(cut) or b"")[:-1])
    assert run.plan(STAGE, {}).reason == f"{cut} is missing or damaged"
    assert build(s3) == ["u1"]
    assert state(run) == before


def test_changed_units_are_redone_alone(s3: str) -> None:
    build(s3)
    assert build(s3, UNITS | {"u2": "changed"}) == ["u2"]


def test_a_damaged_manifest_is_named(s3: str) -> None:
    run = Run(s3)
    run.store.write("manifests/judge.json", b"{")
    with pytest.raises(ArtifactError, match=r"manifests/judge\.json is damaged"):
        run.plan(STAGE, {})


def test_no_key_reaches_the_run(s3: str) -> None:
    build(s3)
    run = Run(s3)
    assert all(SECRET not in (data or b"") for data in state(run)[0].values())
    assert SECRET not in (run.store.read("manifests/judge.json") or b"")


@pytest.mark.slow
@pytest.mark.parametrize("place", [10, 60, 200])
def test_a_page_that_is_not_what_was_written_is_refused_as_it_is_read(s3: str, place: int) -> None:
    build(s3)
    tables = Run(s3).tables("qrels")
    part = tables.parts("qrels")[3]
    data = bytearray(Store(s3).read(part.file) or b"")
    data[place] ^= 4
    Store(s3).write(part.file, bytes(data))
    for read in (
        lambda: tables.read("qrels"),
        lambda: list(tables.batches("qrels")),
        lambda: tables.part(part),
        lambda: tables.sql("FROM qrels"),
    ):
        with pytest.raises(ArtifactError, match="is damaged; find it with `darklode verify RUN`"):
            read()
