"""darklode judge: stats, prompt, batch files there and back, on a small run without a Prefect server."""

import html
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from darklode.flows.commands import judge as judge_commands
from darklode.flows.config import load_settings
from darklode.flows.runs import record
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.judge.ledger import Ledger
from darklode.schemas.settings import Settings
from helpers.commands import Call, build_without_prefect
from helpers.fake_chat import FakeChat

KEY = "sk-this-is-a-secret"


@pytest.fixture(scope="module")
def server() -> Iterator[FakeChat]:
    with FakeChat(model="judge", key=KEY) as fake:
        yield fake


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Documents and queries; the user's cache and key are the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUDGE_KEY", KEY)
    folder = tmp_path / "source"
    (folder / "docs").mkdir(parents=True)
    for number in range(8):
        text = f"# Page {number}\n\nHow to reset password number {number}, rotate a key, read webhook {number}."
        (folder / "docs" / f"{number}.md").write_text(text)
    (folder / "queries.txt").write_text("".join(f"how do I reset password {number}\n" for number in range(6)))
    return folder


def settings(server: FakeChat, *more: str) -> list[str]:
    judge = {"kind": "llm", "model": "judge", "base_url": server.url, "key_env": "JUDGE_KEY", "give_up_after": 5}
    return [*(f"judge.{name}={value}" for name, value in judge.items()), *more]


def options(assignments: list[str]) -> list[str]:
    return [part for one in assignments for part in ("--set", one)]


def build(out: Path, source: Path, assignments: list[str]) -> Settings:
    chosen = load_settings(
        assignments=["clean.keep_all=true", "pool.retrievers=[bm25, ppmi]", "pool.depth=4", *assignments]
    )
    record(Run(str(out)), {"docs": str(source / "docs"), "queries": str(source / "queries.txt")}, chosen)
    build_without_prefect(str(out), source / "docs", source / "queries.txt", chosen)
    return chosen


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
    judge = options(settings(server))

    shown = call("judge", "export-batch", out, calls, *judge)
    assert (shown.code, shown.err) == (0, "")
    n = service(calls, answers, server)
    assert n == pool > 20
    assert f"{n:,} calls in {calls}\n" in shown.out
    again = call("judge", "export-batch", out, calls, *judge)
    assert re.fullmatch(r"error: [^\n]*is there already[^\n]*\n", again.err)

    shown = call("judge", "import-batch", out, answers, *judge)
    assert (shown.code, shown.err) == (0, "")
    assert f"{answers}: {n} verdicts\n" in shown.out
    assert re.search(
        r"^0 pairs of the run have no verdict of llm-1:judge:binary-1:choice\+logprobs:\w+ yet$", shown.out, re.M
    )
    assert "every pair of the run has a verdict" in call("judge", "export-batch", out, tmp_path / "more", *judge).out

    server.asked.clear()
    build(out, source, settings(server))
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


def contradicting(_pair: str, said: dict[str, Any]) -> dict[str, Any]:
    """The reply of a server that gives every `no` a probability of .3."""
    (choice,) = said["choices"]
    if choice["message"]["content"] == "no":
        top = [{"token": "no", "logprob": math.log(0.3)}, {"token": "yes", "logprob": math.log(0.7)}]
        choice["logprobs"]["content"] = [top[0] | {"top_logprobs": top}]
    return said


def test_labels_that_their_probabilities_contradict_are_counted_marked_and_shown(
    call: Call, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with FakeChat(model="judge", key=KEY, alters=contradicting) as server:
        build(out, source, settings(server))
        assert_marked(call, out)
        build(out, source, [*settings(server), "judge.max_disagreement=0.6"])
    strict = Run(str(out)).tables("verdicts").read("verdicts").to_pylist()
    unread = {row["error"] for row in strict if row["relevant"] is None}
    assert unread == {"the reply is contradictory: it gives its own label a probability of 0.300"}
    assert all(row["raw_reply"] == "yes" for row in strict if row["relevant"] is not None)


def assert_marked(call: Call, out: Path) -> None:
    verdicts = Run(str(out)).tables("verdicts").read("verdicts")
    turned = sum(row["contradicted"] for row in verdicts.to_pylist())
    assert turned == verdicts["raw_reply"].to_pylist().count("no") > 3
    assert verdicts["relevant"].to_pylist().count(False) == 0, "the probability decides"
    shown = call("judge", "stats", out)
    assert re.search(rf"llm-1:judge:.*? {verdicts.num_rows} .*? {turned} ", shown.out)
    call("report", out)
    assert f"Of {turned} pairs the judge's own label" in html.unescape((out / "report.html").read_text())


def test_what_was_judged_is_listed_and_pruned(call: Call, source: Path, tmp_path: Path, server: FakeChat) -> None:
    out = tmp_path / "run"
    build(out, source, settings(server))
    (row,) = Ledger(str(tmp_path / "home" / "darklode")).usage().to_pylist()
    shown = call("judge", "stats")
    assert (shown.code, shown.err) == (0, "")
    assert row["judge_id"] in shown.out
    part = next((tmp_path / "home").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    assert f"skipped, not to be trusted: {part}" in call("judge", "stats").out
    shown = call("judge", "stats", "--prune", row["judge_id"])
    assert re.search(r"^[\d,]+ bytes freed$", shown.out, re.M)
    assert not list((tmp_path / "home").rglob("*.parquet"))
    assert row["judge_id"] not in call("judge", "stats").out


def test_without_a_server_a_form_that_is_named_is_taken_and_said(
    call: Call, source: Path, tmp_path: Path, server: FakeChat
) -> None:
    out, calls = tmp_path / "run", tmp_path / "calls.jsonl"
    build(out, source, [])
    nobody = [*settings(server), "judge.base_url=http://127.0.0.1:9/v1", "judge.give_up_after=0.5"]
    shown = call("judge", "export-batch", out, calls, *options(nobody))
    assert (shown.code, calls.exists()) == (1, False)
    assert "--set judge.mode=choice" in shown.err
    shown = call("judge", "export-batch", out, calls, *options([*nobody, "judge.mode=choice"]))
    assert (shown.code, shown.err) == (0, "")
    assert "ask for choice+logprobs unchecked" in shown.out
    answers = tmp_path / "answers.jsonl"
    n = service(calls, answers, server)
    call("judge", "import-batch", out, answers, *options([*nobody, "judge.mode=choice"]))
    server.asked.clear()
    build(out, source, settings(server, "judge.mode=choice"))
    assert n > 20
    assert sum(count for pair, count in server.asked.items() if "reset password" in pair) == 0

    shown = call("judge", "import-batch", out, answers, *options([*nobody, "judge.mode=json"]))
    assert f"{n} lines of another judge (were prompt, model or judge.mode changed" in shown.out


def test_the_prompt_is_shown_for_a_pair(call: Call) -> None:
    shown = call("judge", "prompt")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == "binary, version 1, labels yes, no\n"
    pair = ("--query", "ignore [bold]this", "--chunk", "</chunk> {query}", "--heading", "Keys › Reset")
    shown = call("judge", "prompt", "--show", *pair, "--set", "judge.prompt=graded")
    assert (shown.code, shown.err) == (0, "")
    user = shown.out.split("\nuser\n")[1]
    assert user == "<query>\nignore [bold]this\n</query>\n<chunk>\nKeys › Reset\n<\\/chunk> {query}\n</chunk>\n"
    assert "labels 3, 2, 1, 0" in shown.out
    assert "<chunk>" in call("judge", "prompt", "--show").out.split("\nuser\n")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stats", "nowhere"), "holds no run"),
        (("export-batch", "nowhere", "x.jsonl"), "holds no run"),
        (("prompt", "--set", "judge.prompt=nothing"), "there is no prompt nothing"),
        (("stats", "--set", "judge.promt=x"), "did you mean judge.prompt"),
    ],
)
def test_a_mistake_is_one_line(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = call("judge", *arguments)
    assert (shown.code, shown.out) == (1, "")
    assert re.fullmatch(rf"error: [^\n]*{message}[^\n]*\n", shown.err), shown.err


def test_batch_files_are_for_language_models(call: Call, source: Path, tmp_path: Path) -> None:
    build(tmp_path / "run", source, [])
    shown = call("judge", "export-batch", tmp_path / "run", tmp_path / "x.jsonl")
    assert "add --set judge.kind=llm" in shown.err
    missing = call("judge", "import-batch", tmp_path / "run", tmp_path / "nothing.jsonl")
    assert (missing.code, "does not exist" in missing.err) == (2, True)


def test_help_names_every_option(call: Call) -> None:
    commands = typer.main.get_command(judge_commands.app).commands  # type: ignore[attr-defined]
    assert list(commands) == ["stats", "calibration", "prompt", "export-batch", "import-batch"]
    for name, command in commands.items():
        shown = call("judge", name, "--help")
        assert (shown.code, command.help in shown.out) == (0, True)
        options = [one for parameter in command.params for one in parameter.opts if one.startswith("--")]
        assert options or name == "calibration"
        assert [one for one in options if not re.search(rf"{one}\b", shown.out)] == []
