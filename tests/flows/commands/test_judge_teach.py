"""darklode judge teach: a judge behind a real socket that learns from examples, and one that does not."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from darklode.flows.config import load_settings
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.judge.llm.prompt import load_prompt
from darklode.schemas.run_inputs import BenchmarkInputs
from helpers.commands import Call, build_without_prefect
from helpers.fake_chat import FakeChat, Request
from helpers.judge_commands import KEY, SMALL, judge_settings
from helpers.runs import written

N_QUERIES = 50
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUDGE_KEY", KEY)


def is_answer(query: str, chunk: str) -> bool:
    valve = re.search(r"valve\d+", query)
    return bool(valve and f"Open {valve[0]} slowly" in chunk)


def beginner(body: dict[str, Any]) -> str:
    """Calls every chunk relevant until an example of this corpus is in its prompt."""
    system = body["messages"][0]["content"]
    (user,) = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return "yes" if "gauge" not in system or is_answer(user, user) else "no"


def unreadable_once_taught(request: Request) -> str | None:
    """A prompt with an example of this corpus gets no label for pairs of a fifth of the queries."""
    system = request.body["messages"][0]["content"]
    return "wrong label" if "gauge" in system and re.search(r"open valve\d*[37] with", request.pair) else None


def stubborn(body: dict[str, Any]) -> str:
    (user,) = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return "no" if "gauge1" in user else "yes"


def build(out: Path, folder: Path, server: FakeChat) -> None:
    """A run with reviews of all its pairs."""
    (folder / "docs").mkdir(parents=True)
    for number in range(N_QUERIES):
        text = f"# Part {number}\n\nOpen valve{number} slowly, then press the lever until gauge{number} reads zero."
        (folder / "docs" / f"{number:02}.md").write_text(text)
    (folder / "queries.txt").write_text("".join(f"open valve{number} with the lever\n" for number in range(N_QUERIES)))
    chosen = load_settings(assignments=[*SMALL, *judge_settings(server)])
    write_run(Run(str(out)), BenchmarkInputs(docs=str(folder / "docs"), queries=str(folder / "queries.txt")), chosen)
    build_without_prefect(str(out), folder / "docs", folder / "queries.txt", chosen)
    run = Run(str(out))
    sql = (
        "SELECT p.tenant, p.query_id, p.chunk_id, q.text AS query, c.text AS chunk FROM pool p "
        "JOIN queries q USING (tenant, query_id) JOIN chunks c USING (tenant, chunk_id) ORDER BY ALL"
    )
    rows = run.tables("pool", "queries", "chunks").sql(sql).to_pylist()
    reviews = [
        {name: row[name] for name in ("tenant", "query_id", "chunk_id")}
        | {"reviewer": "ann", "answered_at": WHEN, "relevance": int(is_answer(row["query"], row["chunk"]))}
        | {"rationale": None if is_answer(row["query"], row["chunk"]) else "another valve"}
        for row in rows
    ]
    written(run, "reviews", reviews)


def test_a_judge_that_learns_gets_the_new_prompt(call: Call, tmp_path: Path) -> None:
    with FakeChat(model="judge", key=KEY, decides=beginner) as server:
        build(tmp_path / "run", tmp_path / "source", server)
        verdicts = Run(str(tmp_path / "run")).tables("verdicts").content("verdicts")
        shown = call("judge", "teach", tmp_path / "run", "--to", tmp_path / "taught", "--json")
        assert (shown.code, shown.err) == (0, ""), shown
        answer = json.loads(shown.out)
        assert answer["adopted"] is True
        assert answer["held_out"]["low"] > 0
        assert {row["reason"] for row in answer["examples"]} == {"another valve"}
        n_calls = len(server.served)
        again = call("judge", "teach", tmp_path / "run", "--to", tmp_path / "again" / "taught", "--json")
        assert again.code == 0
        assert json.loads(again.out)["requests"] == 0, "every reply is in the ledger"
        assert len(server.served) == n_calls
    assert Run(str(tmp_path / "run")).tables("verdicts").content("verdicts") == verdicts
    taught, today = load_prompt(str(tmp_path / "taught")), load_prompt("binary")
    assert taught.digest != today.digest
    assert any("valve" in example.query for example in taught.examples)


def test_pairs_that_a_prompt_makes_unreadable_are_counted(call: Call, tmp_path: Path) -> None:
    with FakeChat(model="judge", key=KEY, decides=beginner, script=unreadable_once_taught) as server:
        build(tmp_path / "run", tmp_path / "source", server)
        options = ("judge", "teach", tmp_path / "run", "--to")
        held_out = json.loads(call(*options, tmp_path / "taught", "--json").out)["held_out"]
        shown = call(*options, tmp_path / "again")
    assert held_out["unreadable_today"] == 0
    assert held_out["left_out"] == held_out["unreadable"] > 0
    sentence = f"{held_out['left_out']} other pairs are left out for both prompts: unreadable replies to 0 with today's"
    assert sentence in " ".join(shown.out.split())


def test_a_prompt_that_does_not_help_is_not_written(call: Call, tmp_path: Path) -> None:
    with FakeChat(model="judge", key=KEY, decides=stubborn) as server:
        build(tmp_path / "run", tmp_path / "source", server)
        shown = call("judge", "teach", tmp_path / "run", "--to", tmp_path / "taught")
    assert shown.code == 3
    assert "is not shown to be better than binary" in shown.err
    assert not (tmp_path / "taught").exists()


def test_other_judges_and_existing_folders_are_refused(call: Call, tmp_path: Path) -> None:
    write_run(Run(str(tmp_path / "run")), BenchmarkInputs(docs="d", queries="q"), load_settings())
    shown = call("judge", "teach", tmp_path / "run", "--to", tmp_path / "new")
    assert shown.code == 2
    assert "changes the prompt of a single judge of kind llm" in shown.err
    llm = ["--set", "judge.kind=llm", "--set", "judge.model=m", "--set", "judge.base_url=http://127.0.0.1:1/v1"]
    shown = call("judge", "teach", tmp_path / "run", "--to", tmp_path, *llm)
    assert shown.code == 1
    assert "exists; give a new folder to --to" in shown.err
