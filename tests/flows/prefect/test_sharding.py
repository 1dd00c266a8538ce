"""A build on a Ray cluster of two machines, with its run on S3: the same tables, also when one of them is lost."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.fs as pafs
import pytest
import yaml

from darklode.flows.jobs.generate_queries import generate_queries
from darklode.flows.jobs.measure_entropy import measure_entropy
from darklode.flows.prefect.sharding import spread_over
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.generate import generation
from darklode.schemas.settings import RunnerSettings
from helpers.adapted import build_to_adapt, model_in
from helpers.commands import (
    DARKLODE,
    Environment,
    SampleRun,
    build_command,
    built,
    mine_command,
    run_command,
    tables_of,
    wait_for,
)
from helpers.fake_chat import FakeChat
from helpers.indexed import files_of, settings_in
from helpers.ray_cluster import Cluster, cluster
from helpers.s3_server import filesystem, held, s3_server

pytestmark = pytest.mark.server

OUT = "s3://cluster/runs/sample"
IN_FLIGHT = 32
LONG = 400.0
"""Seconds that a busy machine may take to a stage."""


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """The environment that leads to an S3 server with an empty bucket."""
    with s3_server("cluster") as environment:
        yield environment


@pytest.fixture(scope="module")
def machines(served: Environment, s3: dict[str, str]) -> Iterator[Cluster]:
    with cluster(dict(served) | s3) as two:
        yield two


@pytest.fixture(scope="module")
def bucket(s3: dict[str, str]) -> pafs.FileSystem:
    return filesystem(s3)


def files(bucket: pafs.FileSystem, folder: str, out: str = OUT) -> dict[str, bytes]:
    """Every file in a folder of the run."""
    root = f"{out.removeprefix('s3://')}/{folder}"
    found = bucket.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
    paths = [info.path for info in found if info.is_file]
    return {path.removeprefix(f"{root}/"): bucket.open_input_stream(path).read() for path in paths}


class Spread(NamedTuple):
    """What a build on the cluster printed, and the files that it left."""

    printed: str
    tables: dict[str, bytes]
    progress: dict[str, bytes]


def on_ray(address: str, *more: str, out: str = OUT) -> list[str]:
    return build_command(out, "--set", "runner.kind=ray", "--set", f"runner.address={address}", *more)


@pytest.fixture(scope="module")
def spread(machines: Cluster, bucket: pafs.FileSystem) -> Spread:
    """A build whose searches ran on the two machines, started from outside the cluster, as a Ray client."""
    printed = built(on_ray(machines.client), machines.environment, run_command)
    return Spread(printed, files(bucket, "tables"), files(bucket, "progress"))


@pytest.mark.slow
def test_a_cluster_makes_the_same_tables(spread: Spread, sample_run: SampleRun) -> None:
    assert "\n✓ search " in spread.printed
    assert spread.tables == tables_of(sample_run.folder)
    assert not spread.progress


def asking(server: FakeChat, cache: str | Path) -> list[str]:
    """The options of a judge behind a server."""
    chosen = {"kind": "llm", "model": server.model, "base_url": server.url, "max_concurrency": IN_FLIGHT}
    chosen |= {"probe_pairs": 0}
    given = {f"judge.{key}": value for key, value in chosen.items()}
    given |= {"pool.retrievers": "[bm25, ppmi]", "pool.depth": 8, "cache.root": cache}
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


class Kill(NamedTuple):
    """When a worker is killed: in a stage, after another one is done and something is so."""

    stage: str
    after: str = ""
    ready: Callable[[], bool] = lambda: True


def run_with_kills(command: list[str], machines: Cluster, log: Path, kills: Sequence[Kill]) -> None:
    """Run a command to its end, and kill a worker in some stages; no shard of these ends before one is killed."""
    places = {kill.stage: rf"/progress/{kill.stage}/.*-\d+\.parquet" for kill in kills}
    with log.open("wb") as output, held(*places.values()) as let_go:
        process = subprocess.Popen(command, env=machines.environment, stdout=output, stderr=output)
        try:
            for stage, after, ready in kills:

                def come(after: str = after, line: str = f"✓ {after} ", ready: Callable[[], bool] = ready) -> bool:
                    return ((not after or line in log.read_text()) and ready()) or process.poll() is not None

                wait_for(come, f"the moment after {after}", LONG)
                assert process.poll() is None, log.read_text()
                machines.kill_one_at_work()
                let_go(places[stage])
            assert process.wait(LONG) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


MANY_SHARDS = """
import sys
from darklode.flows import cli
from darklode.pipeline.mine import pairs
from darklode.pipeline.generate import generation
from darklode.pipeline.mine.association import stage
from darklode.pipeline.mine.term_weighting import port
pairs.SHARD_QUERIES = stage.SHARD_QUERIES = port.SHARD_QUERIES = 64
generation.TEXTS_PER_UNIT = 32
sys.argv = ["darklode", *sys.argv[1:]]
sys.exit(cli.run_guarded())
"""


@pytest.mark.slow
def test_a_night_on_a_cluster_mines_the_same_pairs(
    machines: Cluster, bucket: pafs.FileSystem, mined_run: SampleRun, tmp_path: Path
) -> None:
    """A worker is killed while it sums up a day, plans queries, associates them, and makes pairs."""
    out = "s3://cluster/runs/mined"
    _, *words = mine_command(out, "--set", "runner.kind=ray", "--set", f"runner.address={machines.address}")
    kills = [
        Kill("click_evidence", "click_model"),
        Kill("weight_terms", "fit_term_weights"),
        Kill("associate", "weight_terms"),
        Kill("mined_pairs", "relevance"),
    ]
    run_with_kills([sys.executable, "-c", MANY_SHARDS, *words], machines, tmp_path / "log", kills)
    assert files(bucket, "tables", out) == tables_of(mined_run.folder)
    assert not files(bucket, "progress", out)


@pytest.mark.slow
def test_killed_workers_change_no_row_and_lose_no_paid_reply(
    machines: Cluster, bucket: pafs.FileSystem, served: Environment, tmp_path: Path
) -> None:
    """A worker is killed in each stage that is spread, in the judge's after some hundreds of replies."""
    out, log = "s3://cluster/runs/asked", tmp_path / "log"
    with FakeChat() as server:
        built(build_command(tmp_path / "here", *asking(server, tmp_path / "cache")), served)
    with FakeChat(latency=0.05) as server:
        command = on_ray(machines.address, *asking(server, "s3://cluster/cache"), out=out)
        judging = Kill("judge", "calibrate", lambda: len(server.served) > 300)
        run_with_kills(command, machines, log, [Kill("chunk", "ingest_queries"), judging, Kill("triplets", "label")])
        again = sum(server.served.values()) - len(server.served)
        assert again <= IN_FLIGHT + IN_FLIGHT / 0.05  # under way, and what waited half a second for the ledger
        assert 1 < server.most_at_once <= IN_FLIGHT
    assert files(bucket, "tables", out) == tables_of(tmp_path / "here")
    assert not files(bucket, "progress", out)


class Writes(FakeChat):
    """Asks with a text's first words, the other way round, and judges as ever."""

    def _said(self, body: dict[str, Any], pair: str, *, wrong: bool) -> tuple[str, list[dict[str, Any]]]:
        if "self_contained" in body["messages"][0]["content"]:
            return json.dumps({"self_contained": True}), []
        if "<text>" not in pair:
            return super()._said(body, pair, wrong=wrong)
        words = pair.partition("<text>\n")[2].split()
        return json.dumps({"query": f"{words[1]} {words[0]}"}), []


GENERATING = {
    "generate": {"kind": "llm", "round_trip_depth": 3},
    "clean": {"language": None},
    "pool": {"retrievers": ["bm25", "character"]},
}


@pytest.mark.slow
def test_queries_are_written_on_a_cluster_and_none_is_paid_for_twice(
    machines: Cluster, bucket: pafs.FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is killed after some dozens of replies."""
    source, out = build_to_adapt(tmp_path / "run").store.url, "s3://cluster/runs/generated"
    monkeypatch.setattr(generation, "TEXTS_PER_UNIT", 32)
    with Writes() as server:
        judge = {"kind": "llm", "model": server.model, "base_url": server.url, "max_concurrency": IN_FLIGHT}
        judge |= {"probe_pairs": 0}
        generate_queries(source, str(tmp_path / "here"), GENERATING | {"judge": judge})
    with Writes(latency=0.05) as server:
        given = GENERATING | {"judge": judge | {"base_url": server.url}, "cache": {"root": "s3://cluster/written"}}
        file = tmp_path / "settings.yaml"
        file.write_text(yaml.safe_dump(given | {"runner": {"kind": "ray", "address": machines.address}}))
        words = ["generate", source, "--out", out, "--config", str(file)]
        writing_ = Kill("written_queries", "generation_texts", lambda: len(server.served) > 50)
        run_with_kills([sys.executable, "-c", MANY_SHARDS, *words], machines, tmp_path / "log", [writing_])
        again = sum(server.served.values()) - len(server.served)
        assert again <= IN_FLIGHT + IN_FLIGHT / 0.05
        assert 1 < server.most_at_once <= IN_FLIGHT
    made = tables_of(tmp_path / "here")
    assert files(bucket, "tables", out) == made
    assert any(name.startswith("triplets/") for name in made)
    assert not files(bucket, "progress", out)


def ray_words(machines: Cluster, cache: str) -> list[str]:
    given = {"runner.kind": "ray", "runner.address": machines.address, "cache.root": f"s3://cluster/{cache}"}
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


@pytest.mark.slow
def test_entropy_on_a_cluster_is_that_of_one_machine(
    machines: Cluster, bucket: pafs.FileSystem, tmp_path: Path
) -> None:
    """A worker is killed while it encodes the texts or measures them."""
    pytest.importorskip("sentence_transformers")
    source, model = build_to_adapt(tmp_path / "run"), model_in(tmp_path).model
    pafs.copy_files(source.store.url, "cluster/runs/adapt", destination_filesystem=bucket)
    measure_entropy(source.store.url, model)
    command = [DARKLODE, "entropy", "s3://cluster/runs/adapt", "--encoder", model, *ray_words(machines, "cache")]
    run_with_kills(command, machines, tmp_path / "log", [Kill("contrastive_entropy")])
    assert files(bucket, "tables", "s3://cluster/runs/adapt") == tables_of(tmp_path / "run")
    assert not files(bucket, "progress", "s3://cluster/runs/adapt")


@pytest.mark.slow
def test_an_index_made_on_a_cluster_is_that_of_one_machine(
    machines: Cluster, bucket: pafs.FileSystem, indexed: Path, tmp_path: Path
) -> None:
    """A worker is killed while it gives texts their semantic ids, and while it codes vectors."""
    out, settings = "s3://cluster/indexes/first", tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(settings_in(indexed)))
    words = [
        "--encoder",
        str(indexed / "model"),
        "--out",
        out,
        "--config",
        str(settings),
        *ray_words(machines, "vectors"),
    ]
    kills = [Kill("semantic_ids", "semantic_codebooks"), Kill("index", "semantic_ids")]
    run_with_kills([DARKLODE, "index", str(indexed / "vectors.parquet"), *words], machines, tmp_path / "log", kills)
    made = files(bucket, "first", "s3://cluster/indexes")
    assert {name: made[name] for name in files_of(indexed / "index")} == files_of(indexed / "index")
    assert not files(bucket, "progress", out)


@pytest.mark.slow
@pytest.mark.usefixtures("spread")
def test_nothing_is_lost_with_a_machine(
    machines: Cluster, bucket: pafs.FileSystem, sample_run: SampleRun, tmp_path: Path
) -> None:
    """Built again from a machine of the cluster; the other one is killed while it searches, and another joins after."""
    for name in ("manifests/search.json", *(f"tables/rankings/{part}" for part in files(bucket, "tables/rankings"))):
        bucket.delete_file(f"{OUT.removeprefix('s3://')}/{name}")
    log = tmp_path / "log"
    with log.open("wb") as output:
        command = on_ray(machines.address)
        process = subprocess.Popen(command, env=machines.environment, stdout=output, stderr=output)
    try:
        wait_for(lambda: machines.at_work() or process.poll() is not None, "a shard on the second machine")
        machines.lose_the_worker()
        assert process.wait(100) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
        machines.replace_the_worker()
    lines = log.read_text().splitlines()
    assert [line for line in lines if ": not run yet" in line] == ["search: not run yet"]
    assert len([line for line in lines if line.startswith("✓ ") and line.endswith(" up to date")]) == 13
    assert files(bucket, "tables") == tables_of(sample_run.folder)
    assert not files(bucket, "progress")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"])
def test_a_cluster_that_is_not_there_is_said_so_at_once(run: Run, address: str) -> None:
    with pytest.raises(MissingPart, match=f"no Ray cluster answers at runner.address {address};"):
        spread_over(RunnerSettings(kind="ray", address=address), run).__enter__()


def test_a_missing_package_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prefect_ray", None)
    with pytest.raises(MissingPart, match=re.escape('pip install "darklode[ray]"')):
        spread_over(RunnerSettings(kind="ray"), run).__enter__()
