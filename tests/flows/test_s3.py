"""The command with --out s3://bucket/prefix, against an S3 server on loopback."""

import json
import re
from collections.abc import Iterator

import pyarrow.fs as pafs
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.listing_cache import MERGED_MANIFESTS
from darklode.pipeline.base.artifacts.store import LOCK_FILE
from helpers.commands import DARKLODE, Environment, SampleRun, build_command, built, run_inside, tables_of
from helpers.s3_server import KEYS, filesystem, s3_server

pytestmark = pytest.mark.server

OUT = "s3://bucket/some/run"
ACCESS, SECRET = KEYS.values()


@pytest.fixture(scope="module")
def s3(served: Environment) -> Iterator[Environment]:
    """The environment of a user with an S3 server and an empty bucket."""
    with s3_server("bucket") as environment:
        yield dict(served) | environment


def objects(environment: Environment) -> dict[str, bytes]:
    """Every object below the run, by its name there."""
    files = filesystem(dict(environment))
    root = OUT.removeprefix("s3://")
    found = files.get_file_info(pafs.FileSelector(root, recursive=True))
    return {
        info.path.removeprefix(f"{root}/"): files.open_input_stream(info.path).read() for info in found if info.is_file
    }


def without_merged(found: dict[str, bytes]) -> dict[str, bytes]:
    """Without the lease and the merged manifests: the next run adds those of the last seconds of the one before."""
    return {name: data for name, data in found.items() if name not in {MERGED_MANIFESTS, LOCK_FILE}}


@pytest.mark.slow
def test_a_run_on_s3_is_the_local_run(s3: Environment, sample_run: SampleRun) -> None:
    printed = built(build_command(OUT), s3)
    assert f" {OUT}/tables/triplets/\n" in printed
    first = objects(s3)
    tables = {name.removeprefix("tables/"): data for name, data in first.items() if name.startswith("tables/")}
    assert tables == tables_of(sample_run.folder)

    again = built(build_command(OUT), s3)
    assert len(re.findall(r"^✓ .* up to date$", again, re.M)) == len(re.findall(r"^✓ ", printed, re.M)) > 10
    assert without_merged(objects(s3)) == without_merged(first)

    for name, data in first.items():
        assert ACCESS.encode() not in data, name
        assert SECRET.encode() not in data, name
        assert s3["AWS_ENDPOINT_URL"].encode() not in data, name
    assert not [secret for secret in (ACCESS, SECRET) if secret in printed + again]

    page = first["report.html"]
    assert page.count(b"<figure") > 20
    reported = run_inside([DARKLODE, "report", OUT], s3)
    assert (reported.code, reported.out, reported.err) == (0, f"{OUT}/report.html\n", "")
    assert objects(s3)["report.html"] == page

    shown = run_inside([DARKLODE, "status", OUT], s3)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.count(" up to date ") == 13
    counted = "SELECT count(*) AS n FROM triplets t JOIN chunks c ON (c.tenant, c.chunk_id) = (t.tenant, t.positive_id)"
    asked = run_inside([DARKLODE, "query", OUT, counted, "--format", "json"], s3)
    assert (asked.code, asked.err) == (0, "")
    local = Run(str(sample_run.folder)).tables()
    assert json.loads(asked.out) == local.sql(counted).to_pylist() == [{"n": local.rows("triplets")}]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("s3://bucket/none", "s3://bucket/none holds no run; make one with `darklode build"),
        ("s3://nobucket/run", "nobucket"),
        ("s3://", "URL has no bucket"),
        (f"s3://{ACCESS}:{SECRET}@bucket/run", "must not contain keys"),
    ],
    ids=["no run", "no bucket", "no name", "a key"],
)
def test_a_wrong_place_on_s3_is_one_line(s3: Environment, out: str, message: str) -> None:
    shown = run_inside([DARKLODE, "query", out, "SELECT 1"], s3)
    assert (shown.code, shown.out) == (1, "")
    assert re.fullmatch(rf"error: [^\n]*{re.escape(message)}[^\n]*\n", shown.err), shown.err
    assert SECRET not in shown.err
