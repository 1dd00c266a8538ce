"""A build on a Ray cluster of two machines, with its run on S3: the same tables, also when one of them is lost."""

import http.client
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from commands import Environment, SampleRun, build_command, built, tables_of, wait_for
from moto.server import ThreadedMotoServer
from ray_cluster import Cluster, cluster

from flows.spreading import spreading
from pipeline.artifacts import Run
from pipeline.errors import MissingPart
from schemas.settings import RunnerSettings

pytest_plugins = ["flow_fixtures"]
pytestmark = pytest.mark.server

OUT = "s3://cluster/runs/sample"
AWS = {
    "AWS_ACCESS_KEY_ID": "access",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 server with an empty bucket."""
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        connection = http.client.HTTPConnection(host, port)
        connection.request("PUT", "/cluster")
        assert connection.getresponse().status == 200
        connection.close()
        yield f"http://{host}:{port}"
    finally:
        moto.stop()


@pytest.fixture(scope="module")
def machines(served: Environment, s3: str) -> Iterator[Cluster]:
    with cluster(dict(served) | AWS | {"AWS_ENDPOINT_URL": s3}) as two:
        yield two


@pytest.fixture(scope="module")
def bucket(s3: str) -> pafs.FileSystem:
    return pafs.S3FileSystem(endpoint_override=s3, access_key="access", secret_key="secret", region="us-east-1")


def files(bucket: pafs.FileSystem, folder: str) -> dict[str, bytes]:
    """Every file in a folder of the run."""
    root = f"{OUT.removeprefix('s3://')}/{folder}"
    found = bucket.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
    paths = [info.path for info in found if info.is_file]
    return {path.removeprefix(f"{root}/"): bucket.open_input_stream(path).read() for path in paths}


def on_ray(address: str) -> list[str]:
    return build_command(OUT, "--set", "runner.kind=ray", "--set", f"runner.address={address}")


def test_a_cluster_makes_the_same_tables(machines: Cluster, bucket: pafs.FileSystem, sample_run: SampleRun) -> None:
    """From outside the cluster, as a Ray client."""
    printed = built(on_ray(machines.client), machines.environment)
    assert "\n✓ search " in printed
    assert files(bucket, "tables") == tables_of(sample_run.folder)
    assert not files(bucket, "progress")


def test_nothing_is_lost_with_a_machine(
    machines: Cluster, bucket: pafs.FileSystem, sample_run: SampleRun, tmp_path: Path
) -> None:
    """From a machine of the cluster; the other one is killed while it searches."""
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
    lines = log.read_text().splitlines()
    assert [line for line in lines if ": not run yet" in line] == ["search: not run yet"]
    assert len([line for line in lines if line.startswith("✓ ") and line.endswith(" stands")]) == 11
    assert files(bucket, "tables") == tables_of(sample_run.folder)
    assert not files(bucket, "progress")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"])
def test_a_cluster_that_is_not_there_is_said_so_at_once(run: Run, address: str) -> None:
    with pytest.raises(MissingPart, match=f"no Ray cluster answers at runner.address {address};"):
        spreading(RunnerSettings(kind="ray", address=address), run).__enter__()


def test_a_missing_package_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prefect_ray", None)
    with pytest.raises(MissingPart, match=re.escape('pip install "darklode[ray]"')):
        spreading(RunnerSettings(kind="ray"), run).__enter__()
