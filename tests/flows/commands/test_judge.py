"""darklode judge: stats and prompt, on a small run without a Prefect server."""

import html
import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from darklode.flows.commands import judge as judge_commands
from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.llm.logprobs import LABEL_CONTRADICTED
from darklode.pipeline.judge.recorded import NOT_RECORDED
from helpers.commands import Call, build_without_prefect
from helpers.fake_chat import FakeChat
from helpers.judge_commands import KEY, SMALL, build, judge_settings


def contradicting(_pair: str, said: dict[str, Any]) -> dict[str, Any]:
    """The reply of a server that gives every `no` a probability of .3."""
    (choice,) = said["choices"]
    if choice["message"]["content"] == "no":
        top = [{"token": "no", "logprob": math.log(0.3)}, {"token": "yes", "logprob": math.log(0.7)}]
        choice["logprobs"]["content"] = [top[0] | {"top_logprobs": top}]
    return said


@pytest.mark.slow
def test_labels_that_their_probabilities_contradict_are_counted_marked_and_shown(
    call: Call, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with FakeChat(model="judge", key=KEY, alters=contradicting) as server:
        build(out, source, judge_settings(server))
    verdicts = Run(str(out)).tables("verdicts").read("verdicts")
    rows = verdicts.to_pylist()
    assert all(row["relevant"] == (row["raw_reply"] == "yes") for row in rows), "the written label decides"
    turned = sum(bool(row["contradicted"]) for row in rows)
    assert turned == verdicts["raw_reply"].to_pylist().count("no") > 3
    assert [row["probability"] is None for row in rows] == [row["raw_reply"] == "no" for row in rows]
    shown = call("judge", "stats", out)
    assert re.search(rf"llm-1:judge:.*? {verdicts.num_rows} .*? {turned} ", shown.out)
    call("report", out)
    report = html.unescape((out / "report.html").read_text())
    assert f"The log-probabilities of {turned} verdicts contradict the judge's label" in report
    assert f"{turned} of {verdicts.num_rows} labels have no probability ({turned}: {LABEL_CONTRADICTED})" in report


@pytest.mark.slow
def test_what_was_judged_is_listed_and_pruned(call: Call, source: Path, tmp_path: Path, server: FakeChat) -> None:
    out = tmp_path / "run"
    build(out, source, judge_settings(server))
    (row,) = Ledger(str(tmp_path / "home" / "darklode")).usage().to_pylist()
    shown = call("judge", "stats")
    assert (shown.code, shown.err) == (0, "")
    assert row["judge_id"] in shown.out
    part = next((tmp_path / "home").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    assert f"skipped, damaged: {part}" in call("judge", "stats").out
    shown = call("judge", "stats", "--prune", row["judge_id"])
    assert re.search(r"^[\d,]+ bytes freed$", shown.out, re.M)
    assert not list((tmp_path / "home").rglob("*.parquet"))
    assert row["judge_id"] not in call("judge", "stats").out


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
        (("batch", "export", "nowhere", "x.jsonl"), "holds no run"),
        (
            ("export-batch", "nowhere", "x.jsonl"),
            "`darklode judge export-batch` was renamed to `darklode judge batch export`",
        ),
        (
            ("import-batch", "nowhere", "x.jsonl"),
            "`darklode judge import-batch` was renamed to `darklode judge batch fetch`",
        ),
        (("prompt", "--set", "judge.prompt=nothing"), "there is no prompt nothing"),
        (("stats", "--set", "judge.promt=x"), "did you mean judge.prompt"),
    ],
)
def test_a_mistake_is_one_line(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = call("judge", *arguments)
    assert (shown.code, shown.out) == (1 + ("holds no run" not in message), "")
    assert re.fullmatch(rf"error: [^\n]*{message}[^\n]*\n", shown.err), shown.err


def test_help_names_every_option(call: Call) -> None:
    commands: dict[str, Any] = typer.main.get_command(judge_commands.app).commands  # type: ignore[attr-defined]
    assert list(commands) == ["stats", "calibration", "prompt", "probe", "teach", "distil", "batch"]
    commands |= {f"batch {name}": command for name, command in commands.pop("batch").commands.items()}
    assert [name for name in commands if " " in name] == [
        f"batch {name}" for name in ("export", "submit", "status", "fetch", "forget")
    ]
    for name, command in commands.items():
        shown = call("judge", *name.split(), "--help")
        assert (shown.code, command.help in shown.out) == (0, True)
        options = [one for parameter in command.params for one in parameter.opts if one.startswith("--")]
        assert options or name == "calibration"
        assert [one for one in options if not re.search(rf"{one}\b", shown.out)] == []


@pytest.mark.slow
def test_recorded_verdicts_judge_as_the_run_they_come_from(call: Call, source: Path, tmp_path: Path) -> None:
    """Alone and as a panel of two columns; a changed file is judged again, one that is absent stops the build."""
    columns = ["query_id", "chunk_id", "relevant", "probability"]
    first, again, panel, file = (tmp_path / name for name in ("first", "again", "panel", "verdicts.parquet"))

    def verdicts_of(out: Path) -> pa.Table:
        order = [("query_id", "ascending"), ("chunk_id", "ascending")]
        return Run(str(out)).tables("verdicts").read("verdicts").select(columns).sort_by(order)

    build(first, source, [])
    recorded = ["judge.kind=recorded", f"judge.verdicts={file}"]
    pq.write_table(Run(str(first)).tables("verdicts").read("verdicts"), file)
    settings = build(again, source, recorded)
    assert build_without_prefect(str(again), source / "docs", source / "queries.txt", settings) == []
    assert verdicts_of(again).equals(verdicts_of(first))
    judge_ids = Run(str(again)).tables("verdicts").read("verdicts")["judge_id"].unique().to_pylist()
    assert [name.partition(":")[0] for name in judge_ids] == ["recorded-1"]

    rows = verdicts_of(first).to_pylist()
    pq.write_table(verdicts_of(first).slice(1), file)
    changed = load_settings(assignments=[*SMALL, *recorded])
    stages = build_without_prefect(str(again), source / "docs", source / "queries.txt", changed)
    assert "judge" in stages
    assert "pool" not in stages
    errors = Run(str(again)).tables("verdicts").read("verdicts")["error"].drop_null().to_pylist()
    assert errors == [NOT_RECORDED]

    labels = tmp_path / "labels.tsv"
    lines = [f"{row['query_id']}\t{row['chunk_id']}\t{int(row['relevant'])}\t1" for row in rows]
    labels.write_text("\n".join(["query_id\tchunk_id\tone\ttwo", *lines, ""]))
    second = f"judge.panel=[{{kind: recorded, verdicts: {labels}, column: two}}]"
    one_and_two = ["judge.kind=recorded", f"judge.verdicts={labels}", "judge.column=one", second]
    build(panel, source, one_and_two)
    (panel_id,) = Run(str(panel)).tables("verdicts").read("verdicts")["judge_id"].unique().to_pylist()
    assert panel_id.startswith("panel-1:")
    shown = call("judge", "calibration", panel)
    assert (shown.code, shown.err) == (0, "")
    assert "Pairwise agreement within the panel" in shown.out
    assert re.search(rf"{len(rows)} +{len(rows) - sum(not row['relevant'] for row in rows)} ", shown.out)

    assert "against people" not in shown.out, "nobody labelled a pair"

    people = tmp_path / "people.csv"
    lines = [f"{row['query_id']},{row['chunk_id']},{int(row['relevant'])}" for row in rows]
    people.write_text("\n".join(["query_id,chunk_id,relevance", *lines, ""]))
    build(panel, source, [*one_and_two, f"judge.human_labels={people}"])
    shown = call("judge", "calibration", panel)
    assert (shown.code, shown.err) == (0, "")
    assert "against people and against one another" in shown.out
    assert "Their errors are those of" in shown.out
    assert f"best member, {panel_id.split('*')[1].split(' ')[0]}" in shown.out or "Comparing votes needs" in shown.out

    inputs = ("--docs", source / "docs", "--queries", source / "queries.txt", "--out", tmp_path / "none")
    stopped = call("build", *inputs, "--set", "judge.kind=recorded", "--set", "judge.verdicts=absent.csv")
    assert stopped.code == 1
    assert "absent.csv cannot be read" in stopped.err
    assert not (tmp_path / "none").exists()
