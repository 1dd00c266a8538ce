"""darklode judge batch: files there and back, and a hosted service, on a small run without a Prefect server."""

import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from helpers.commands import DARKLODE, Call, wait_for
from helpers.fake_batches import FakeBatches
from helpers.fake_chat import FakeChat
from helpers.judge_commands import KEY, build, judge_settings, options


@pytest.fixture
def hosted() -> Iterator[FakeBatches]:
    with FakeBatches(model="judge", key=KEY) as fake:
        yield fake


def service(calls: Path, answers: Path, server: FakeChat) -> int:
    """A batch service: an answer for every call, the last first."""
    lines = [json.loads(line) for line in calls.read_bytes().splitlines()]
    done = [
        {
            "custom_id": call["custom_id"],
            "response": {
                "status_code": 200,
                "body": server.completion(call["body"], call["body"]["messages"][-1]["content"]),
            },
            "error": None,
        }
        for call in lines
    ]
    answers.write_text("".join(json.dumps(row) + "\n" for row in reversed(done)))
    return len(lines)


def test_a_batch_goes_out_and_comes_back_and_the_next_build_asks_nothing(
    call: Call, source: Path, tmp_path: Path, server: FakeChat
) -> None:
    out, calls, answers = tmp_path / "run", tmp_path / "calls.jsonl", tmp_path / "answers.jsonl"
    build(out, source, [])
    pool = Run(str(out)).tables("pool").rows("pool")
    judge = options(judge_settings(server))

    shown = call("judge", "batch", "export", out, calls, *judge)
    assert (shown.code, shown.err) == (0, "")
    n = service(calls, answers, server)
    assert n == pool > 20
    assert f"{n:,} calls in {calls}\n" in shown.out
    again = call("judge", "batch", "export", out, calls, *judge)
    assert re.fullmatch(r"error: [^\n]*exists and may have been submitted[^\n]*\n", again.err)

    shown = call("judge", "batch", "fetch", out, answers, *judge)
    assert (shown.code, shown.err) == (0, "")
    assert f"{answers}: {n} verdicts\n" in shown.out
    assert re.search(
        r"^0 pairs of the run have no verdict by llm-1:judge:binary-1:choice\+logprobs:\w+ yet$", shown.out, re.M
    )
    assert "every pair of the run has a verdict" in call("judge", "batch", "export", out, tmp_path / "more", *judge).out

    server.asked.clear()
    build(out, source, judge_settings(server))
    assert sum(count for pair, count in server.asked.items() if "reset password" in pair) == 0
    verdicts = Run(str(out)).tables("verdicts").read("verdicts")
    assert verdicts.num_rows == n
    assert verdicts["relevant"].null_count == 0
    assert {one.split(":")[0] for one in verdicts["judge_id"].to_pylist()} == {"llm-1"}

    shown = call(
        "judge", "stats", out, *options(["judge.prompt_price_per_million=1000", "judge.completion_price_per_million=1"])
    )
    assert (shown.code, shown.err) == (0, "")
    (row,) = re.findall(r"^llm-1:judge:.*$", shown.out, re.M)
    tokens = sum(verdicts["prompt_tokens"].to_pylist())
    assert re.search(rf" {n} .* 0 +{tokens:,} ", row)
    assert f"{(tokens * 1000 + n) / 1e6:.3f}" in row

    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY.encode() not in everything
    assert KEY not in shown.out


def test_what_the_judge_warns_of_is_said(call: Call, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with FakeChat(model="judge", key=KEY) as server:
        build(out, source, judge_settings(server))
        server.card = {"root": "Qwen/Qwen3-8B"}
        shown = call("judge", "batch", "export", out, tmp_path / "calls.jsonl")
    assert (shown.code, shown.err) == (0, "")
    assert "judge is served as Qwen/Qwen3-8B, so all pairs are judged again." in shown.out
    assert "The ledger has verdicts of llm-1:judge:binary-1" in shown.out


@pytest.mark.slow
def test_without_a_server_a_form_that_is_named_is_taken_and_said(
    call: Call, source: Path, tmp_path: Path, server: FakeChat
) -> None:
    out, calls = tmp_path / "run", tmp_path / "calls.jsonl"
    build(out, source, [])
    nobody = [*judge_settings(server), "judge.base_url=http://127.0.0.1:9/v1", "judge.retry_timeout=0.5"]
    shown = call("judge", "batch", "export", out, calls, *options(nobody))
    assert (shown.code, calls.exists()) == (1, False)
    assert "--set judge.response_format=choice" in shown.err
    shown = call("judge", "batch", "export", out, calls, *options([*nobody, "judge.response_format=choice"]))
    assert (shown.code, shown.err) == (0, "")
    assert "The calls request choice+logprobs without checking" in shown.out
    answers = tmp_path / "answers.jsonl"
    n = service(calls, answers, server)
    call("judge", "batch", "fetch", out, answers, *options([*nobody, "judge.response_format=choice"]))
    server.asked.clear()
    build(out, source, judge_settings(server, "judge.response_format=choice"))
    assert n > 20
    assert sum(count for pair, count in server.asked.items() if "reset password" in pair) == 0

    shown = call("judge", "batch", "fetch", out, answers, *options([*nobody, "judge.response_format=json"]))
    assert f"{n} lines of another judge (did prompt, model or judge.response_format change" in shown.out


def test_batch_files_are_for_language_models(call: Call, source: Path, tmp_path: Path) -> None:
    build(tmp_path / "run", source, [])
    shown = call("judge", "batch", "export", tmp_path / "run", tmp_path / "x.jsonl")
    assert "add --set judge.kind=llm" in shown.err
    missing = call("judge", "batch", "fetch", tmp_path / "run", tmp_path / "nothing.jsonl")
    assert (missing.code, "does not exist" in missing.err) == (2, True)


@pytest.mark.slow
def test_a_run_is_judged_at_a_service_without_asking_anything_twice(
    call: Call, source: Path, tmp_path: Path, hosted: FakeBatches
) -> None:
    out, judge = tmp_path / "run", options(judge_settings(hosted, "judge.response_format=json"))
    build(out, source, [])
    pool = Run(str(out)).tables("pool").rows("pool")
    assert "nothing of llm-1:judge:" in call("judge", "batch", "status", out, *judge).out
    shown = call("judge", "batch", "submit", out, *judge)
    assert (shown.code, shown.err) == (0, "")
    assert re.search(rf"^{pool} calls submitted to 127\.0\.0\.1:\d+/v1 as batch-0$", shown.out, re.M)
    shown = call("judge", "batch", "submit", out, *judge)
    assert f"every pair of the run has a verdict or is in a submitted batch ({pool} calls)" in shown.out
    assert (
        f"is in a submitted batch ({pool} calls)"
        in call("judge", "batch", "export", out, tmp_path / "x.jsonl", *judge).out
    )
    assert re.search(rf"batch-0 +in_progress +{pool} +0 +0 ", call("judge", "batch", "status", out, *judge).out)
    waiting = call("judge", "batch", "fetch", out, *judge).out
    assert f"batch-0: in_progress, 0 of {pool} answered\n" in waiting
    other = call("judge", "batch", "fetch", out, *judge, "--set", "judge.rationale=true").out
    assert re.search(r"; under way are calls of llm-1:judge:binary-1:json\+logprobs:\w+: use the settings", other)

    hosted.finish("batch-0", failing=2)
    shown = call("judge", "batch", "fetch", out, *judge)
    assert f"batch-0: completed: {pool - 2} verdicts, 2 failed calls, to be submitted again\n" in shown.out
    assert re.search(r"^2 pairs of the run have no verdict", shown.out, re.M)
    assert "2 calls submitted" in call("judge", "batch", "submit", out, *judge).out
    hosted.finish("batch-1")
    assert "batch-1: completed: 2 verdicts\n" in call("judge", "batch", "fetch", out, *judge).out

    hosted.asked.clear()
    build(out, source, judge_settings(hosted, "judge.response_format=json"))
    assert hosted.asked == Counter(), "the build needs no server any more"
    assert Run(str(out)).tables("verdicts").read("verdicts")["relevant"].null_count == 0
    assert KEY.encode() not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_submission_that_is_killed_while_the_service_begins_is_found_again(
    call: Call, source: Path, tmp_path: Path, hosted: FakeBatches
) -> None:
    out, judge = tmp_path / "run", options(judge_settings(hosted, "judge.response_format=json", "judge.timeout=60"))
    build(out, source, [])
    hosted.fault = lambda method, path: "hang" if (method, path) == ("POST", "/v1/batches") else None
    process = subprocess.Popen([DARKLODE, "judge", "batch", "submit", str(out), *judge])
    try:
        wait_for(lambda: bool(hosted.batches), "the batch")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    hosted.fault = None
    shown = call("judge", "batch", "submit", out, *judge)
    assert "is in a submitted batch" in shown.out
    assert list(hosted.batches) == ["batch-0"]
    hosted.finish("batch-0")
    assert re.search(r"batch-0: completed: \d+ verdicts\n0 pairs", call("judge", "batch", "fetch", out, *judge).out)
