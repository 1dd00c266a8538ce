"""Two processes that write to one run on S3: real processes, and a real S3 server on loopback."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from darklode.pipeline.base.artifacts import Run, Store, s3_lease
from darklode.pipeline.base.artifacts.s3_lease import LeaseRecord, RunLease, S3LeaseObject, StoredLease
from darklode.pipeline.base.artifacts.temporary_files import machine_id
from darklode.pipeline.base.errors import ArtifactError
from helpers.commands import wait_for
from helpers.runs import PYTHONPATH
from helpers.s3_server import one_at_a_time, without_conditions
from helpers.staged import STAGE, build, qrels

pytestmark = pytest.mark.server

HOLD = """
import sys
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
try:
    with Run(sys.argv[1]).lock():
        print("held", flush=True)
        sys.stdin.read()
except ArtifactError as error:
    print(error, flush=True)
"""


@contextmanager
def process(url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the run until its standard input is closed, or prints why it cannot."""
    command, pipe = [sys.executable, "-c", HOLD, url], subprocess.PIPE
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def first_line(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline()


def record(url: str) -> LeaseRecord:
    found = LeaseRecord.parse(Store(url).read(".lock") or b"")
    assert found is not None
    return found


def lease(url: str) -> RunLease:
    return RunLease(S3LeaseObject(f"{url.removeprefix('s3://')}/.lock"), url)


def test_a_second_process_is_refused_and_told_who_writes(bucket: str) -> None:
    with process(bucket) as holder:
        assert first_line(holder) == "held\n"
        owner = rf"\(\S+, PID {holder.pid}, since 20\S+\+00:00\)"
        expected = rf"another process {owner} is writing to {bucket}; wait for it or choose another --out\. If it was"
        with pytest.raises(ArtifactError, match=rf"{expected} killed, its lease expires in \d+ s$"), Run(bucket).lock():
            pytest.fail("two processes hold one run")
        with process(bucket) as second:
            assert re.match(expected, first_line(second))
        holder.communicate("")
    with Run(bucket).lock():
        assert record(bucket).pid == os.getpid()


def test_the_lease_of_a_killed_process_of_this_machine_ends_with_it(bucket: str) -> None:
    with process(bucket) as holder:
        assert first_line(holder) == "held\n"
    assert (record(bucket).pid, record(bucket).released) == (holder.pid, False)
    with Run(bucket).lock():
        assert record(bucket).pid == os.getpid()


@pytest.mark.slow
def test_of_several_that_start_at_once_one_writes(bucket: str) -> None:
    with one_at_a_time(), process(bucket) as a, process(bucket) as b, process(bucket) as c:
        lines = [first_line(started) for started in (a, b, c)]
    assert lines.count("held\n") == 1
    assert sum("is writing to" in line for line in lines) == 2


def elsewhere(url: str) -> LeaseRecord:
    """A lease of another machine's process."""
    other = replace(LeaseRecord.of_this_process(), machine="0" * 8, host="worker-7", token="1" * 8)
    Store(url).write(".lock", other.dump())
    return other


def test_another_machines_lease_holds_until_it_expires(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(bucket)
    with pytest.raises(ArtifactError, match=r"another process \(worker-7, PID"), Run(bucket).lock():
        pytest.fail("it is held")
    monkeypatch.setattr(s3_lease, "LEASE_SECONDS", -1.0)
    with Run(bucket).lock():
        assert record(bucket).host != "worker-7"


def test_what_makes_a_lease_free() -> None:
    mine = LeaseRecord.of_this_process()
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    dead = replace(mine, pid=ended.pid)
    cases = {
        "held by this machine": (mine, 0.0, False),
        "expired": (mine, 61.0, True),
        "released": (replace(mine, released=True), 0.0, True),
        "its process is gone": (dead, 0.0, True),
        "a process of that number is gone here, not there": (replace(dead, machine="0" * 8), 0.0, False),
        "damaged": (None, 0.0, False),
        "damaged long ago": (None, 61.0, True),
    }
    found = {name: StoredLease(record, "e", age).is_free for name, (record, age, _) in cases.items()}
    assert found == {name: free for name, (_, _, free) in cases.items()}
    assert mine.machine == machine_id()


def test_a_damaged_lease_is_not_taken_over_before_it_expires(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(bucket).write(".lock", b"{")
    with pytest.raises(ArtifactError, match=f"another process is writing to {bucket}"), Run(bucket).lock():
        pytest.fail("it is held")
    monkeypatch.setattr(s3_lease, "LEASE_SECONDS", -1.0)
    with Run(bucket).lock():
        pass


def test_it_is_renewed_while_it_is_held(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_lease, "RENEWAL_SECONDS", 0.01)
    with Run(bucket).lock():
        wait_for(lambda: record(bucket).renewals > 2, "three renewals")
    assert record(bucket).released


def test_a_process_whose_lease_was_taken_over_writes_no_manifest(bucket: str) -> None:
    run = Run(bucket)
    with run.lock():
        run.execute(run.plan(STAGE, {}), lambda _, output: output.write("qrels", qrels("before")))
        before = run.manifest(STAGE)
        elsewhere(bucket)  # as after a suspension that outlasted the lease
        lost = pytest.raises(ArtifactError, match="this process was suspended, or could not reach S3")
        with lost:
            run.execute(run.plan(STAGE, {"changed": 1}), lambda _, output: output.write("qrels", qrels("after")))
        assert Run(bucket).manifest(STAGE) == before
    assert record(bucket).host == "worker-7"
    assert not record(bucket).released


class LosesReplies(S3LeaseObject):
    """Writes, but loses the reply and tries again, as the client does after an interrupted connection."""

    def create(self, data: bytes) -> str | None:
        super().create(data)
        return super().create(data)

    def replace(self, data: bytes, etag: str) -> str | None:
        super().replace(data, etag)
        return super().replace(data, etag)


def test_a_write_that_was_repeated_is_ones_own(bucket: str) -> None:
    mine = RunLease(LosesReplies(f"{bucket.removeprefix('s3://')}/.lock"), bucket)
    mine.acquire()
    mine.confirm()
    mine.confirm()
    assert record(bucket).renewals == 2
    mine.release()


@pytest.mark.parametrize("refusing", [False, True], ids=["ignores conditions", "refuses conditions"])
def test_a_store_without_conditional_writes_works_with_a_warning(
    bucket: str, caplog: pytest.LogCaptureFixture, refusing: bool
) -> None:
    with without_conditions(refusing=refusing), caplog.at_level(logging.WARNING), Run(bucket).lock():
        build(bucket)
    assert [one.getMessage() for one in caplog.records] == [
        f"The S3 server of {bucket} has no conditional writes (If-Match), so that two commands that write to this run "
        "at the same time are not told apart. Make sure that only one runs."
    ]
    assert Run(bucket).tables("qrels").rows("qrels") == 40


def test_a_bucket_that_is_not_there_is_one_sentence(bucket: str) -> None:
    url = "s3://nobucket/run"
    with (
        pytest.raises(ArtifactError, match=rf"^S3 refused PutObject \(NoSuchBucket: .*\) for {url}; check"),
        Run(url).lock(),
    ):
        pytest.fail("there is no bucket")


def test_a_server_that_does_not_answer_is_one_sentence(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(ArtifactError, match=r"S3 cannot be used for .*; check the network"), Run(bucket).lock():
        pytest.fail("there is no server")


def test_an_error_in_the_block_is_itself_and_releases_the_lease(bucket: str) -> None:
    with pytest.raises(RuntimeError, match="its own"), Run(bucket).lock():
        raise RuntimeError("its own")
    assert record(bucket).released


def test_the_object_says_who_and_holds_no_secret(bucket: str) -> None:
    with Run(bucket).lock():
        data = Store(bucket).read(".lock") or b""
    assert set(json.loads(data)) == {"host", "pid", "machine", "since", "token", "renewals", "released"}
    assert os.environ["AWS_SECRET_ACCESS_KEY"].encode() not in data
    assert Store(bucket).root_names() == []
