"""What is known of a run on S3 while one process works on it: fewer requests, and never another answer."""

import time
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Output, Run, Stage, Store, Tables, listing_cache
from darklode.pipeline.base.artifacts.listing_cache import MERGED_MANIFESTS
from darklode.pipeline.base.errors import ArtifactError
from helpers.s3_server import asked
from helpers.staged import qrels

pytestmark = pytest.mark.server

ONE, TWO = (Stage(name, 1, (), (table,)) for name, table in (("one", "qrels"), ("two", "held_out")))


def work(_tables: Tables, output: Output) -> None:
    if "qrels" in output._plan.stage.writes:
        output.write("qrels", qrels("a"))


def make(run: Run, *stages: Stage, **settings: int) -> None:
    for stage in stages:
        run.execute(run.plan(stage, settings), work)


def stand(url: str) -> tuple[bool, bool]:
    run = Run(url)
    with run.lock():
        return run.plan(ONE, {}).is_up_to_date, run.plan(TWO, {}).is_up_to_date


def test_what_was_read_and_listed_is_not_asked_for_again(bucket: str) -> None:
    make(Run(bucket), ONE, TWO)
    run = Run(bucket)
    with run.lock(), asked() as seen:
        run.manifests()
        first = len(seen)
        assert first
        for _ in range(3):
            assert (run.plan(ONE, {}).is_up_to_date, len(run.parts())) == (True, 2)
        assert [one for one in seen[first:] if one[0] != "LIST"] == []
        assert len(seen) == first + 1, "the tables were listed once"


def test_it_follows_what_is_written_and_deleted(bucket: str) -> None:
    store = Store(bucket)
    with store.cache_listings():
        assert (store.read("manifests/a.json"), store.folders("tables")) == (None, [])
        store.write("manifests/a.json", b"{}")
        store.write("tables/t/x/part", b"123")
        assert (store.read("manifests/a.json"), store.folders("tables")) == (b"{}", ["t"])
        assert store.sizes("tables/t", recursive=True) == {"tables/t/x/part": 3}
        assert (store.sizes("tables/t"), store.folders("tables/t")) == ({}, ["x"])
        store.delete("tables/t/x/part")
        store.delete("manifests/a.json")
        assert (store.read("manifests/a.json"), store.sizes("tables", recursive=True)) == (None, {})


def test_manifests_that_lie_together_save_their_own_requests(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache, "SETTLE_SECONDS", 0.0)
    run = Run(bucket)
    with run.lock():
        make(run, ONE, TWO)
    assert Store(bucket).read(MERGED_MANIFESTS)
    with asked() as seen:
        assert stand(bucket) == (True, True)
    assert [path for kind, path in seen if "/manifests/" in path] == []


@pytest.mark.slow
def test_a_manifest_that_is_newer_than_those_together_counts(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache, "SETTLE_SECONDS", 0.0)
    run = Run(bucket)
    with run.lock():
        make(run, ONE, TWO)
    time.sleep(1.1)  # of S3's clock
    make(Run(bucket), ONE, seed=2)  # as one that was killed before it wrote them together
    assert stand(bucket) == (False, True)


def test_one_that_was_written_a_moment_ago_is_not_among_them(bucket: str) -> None:
    run = Run(bucket)
    with run.lock():
        make(run, ONE)
    assert b"manifests/one" not in (Store(bucket).read(MERGED_MANIFESTS) or b"")
    assert stand(bucket)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"manifests/one.json": 3}', b'{"manifests/one.json": [1, 2, null]}']
)
def test_damage_to_them_is_as_if_they_were_not_there(bucket: str, data: bytes) -> None:
    make(Run(bucket), ONE, TWO)
    Store(bucket).write(MERGED_MANIFESTS, data)
    assert stand(bucket) == (True, True)


def test_another_process_that_finishes_meanwhile_is_seen(bucket: str) -> None:
    run = Run(bucket)

    def slow(_tables: Tables, output: Output) -> None:
        make(Run(bucket), ONE, seed=3)
        work(_tables, output)

    with run.lock(), pytest.raises(ArtifactError, match="another process has just finished"):
        run.execute(run.plan(ONE, {}), slow)


def test_what_others_write_to_progress_is_seen_once_there_is_work(bucket: str) -> None:
    run = Run(bucket)
    with run.lock():
        assert run.store.sizes("progress/one") == {}

        def watching(_tables: Tables, output: Output) -> None:
            Store(bucket).write("progress/one/result", b"1")
            assert run.store.sizes("progress/one") == {"progress/one/result": 1}
            work(_tables, output)

        run.execute(run.plan(ONE, {}), watching)
        assert run.store.sizes("progress/one") == {}, "it was tidied"


def test_a_folder_keeps_nothing(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    with run.lock():
        make(run, ONE)
    assert not (tmp_path / "run" / MERGED_MANIFESTS).exists()
