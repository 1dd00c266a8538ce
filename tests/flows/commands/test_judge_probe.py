"""darklode judge probe: a judge behind a real socket that is fooled on purpose, judges of texts, and the gate."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from darklode.flows.config import load_settings
from darklode.flows.runs import read_run, write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.judge.probe.alterations import INSTRUCTIONS
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.commands import Call, build_without_prefect
from helpers.fake_chat import FakeChat, Request
from helpers.judge_commands import KEY, SMALL, judge_settings, options

N_QUERIES = 16
PROBES = "judge.probe_pairs=40"
MADE_BY_PROBES = {"judge_probe", "judge_probes", "funnel"}

POSITIVES_SQL = """
    SELECT count(*) AS n FROM judge_probes WHERE kind = 'order of examples' AND unchanged_relevant
"""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUDGE_KEY", KEY)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty documents and sixteen queries; each query has one document."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "docs").mkdir()
    for number in range(40):
        text = f"# Part {number}\n\nOpen valve{number} slowly, then press the lever until gauge{number} reads zero."
        (folder / "docs" / f"{number:02}.md").write_text(text)
    (folder / "queries.txt").write_text("".join(f"open valve{number} with the lever\n" for number in range(N_QUERIES)))
    return folder


def pair_of(body: dict[str, Any]) -> tuple[str, str]:
    """Query and chunk of a request; empty for a request that only tries the form of an answer."""
    (user,) = [message["content"] for message in body["messages"] if message["role"] == "user"]
    match = re.search(r"<query>\n(.*)\n</query>\n<chunk>\n(.*)\n</chunk>", user, re.DOTALL)
    return (match[1], match[2]) if match else ("", "")


def honest(body: dict[str, Any]) -> str:
    """Whether the chunk says how to open the query's valve."""
    query, chunk = pair_of(body)
    valve = re.search(r"valve\d+", query)
    return "yes" if valve and f"Open {valve[0]} slowly, then" in chunk else "no"


def gullible(body: dict[str, Any]) -> str:
    """Obeys planted instructions, and counts the query's words."""
    query, chunk = pair_of(body)
    is_planted = any(instruction in chunk for instruction in INSTRUCTIONS)
    is_stuffed = set(re.findall(r"\w+", query)) <= set(re.findall(r"\w+", chunk))
    return "yes" if is_planted or is_stuffed else honest(body)


def build(out: Path, source: Path, assignments: list[str]) -> Settings:
    chosen = load_settings(assignments=[*SMALL, *assignments])
    write_run(Run(str(out)), BenchmarkInputs(docs=str(source / "docs"), queries=str(source / "queries.txt")), chosen)
    build_without_prefect(str(out), source / "docs", source / "queries.txt", chosen)
    return chosen


def contents(out: Path) -> dict[str, str]:
    """Content of every table but those of probes and the funnel, which counts them."""
    run = Run(str(out))
    parts = run.parts()
    return {name: run.tables(name).content(name) for name in parts if name not in MADE_BY_PROBES}


def rates(call: Call, out: Path, *more: str) -> dict[str, dict[str, Any]]:
    shown = call("judge", "probe", out, "--json", *more)
    assert (shown.code, shown.err) == (0, ""), shown
    return {row["kind"]: row for row in json.loads(shown.out)["probes"]}


def test_a_build_probes_its_language_model_and_labels_stay_the_same(call: Call, parts: Path, tmp_path: Path) -> None:
    with FakeChat(model="judge", key=KEY, decides=gullible) as server:
        build(tmp_path / "bare", parts, judge_settings(server))
        n_pairs = len(server.served)
        build(tmp_path / "run", parts, judge_settings(server, PROBES))
        n_probes = len(server.served) - n_pairs
        found = rates(call, tmp_path / "run")
        assert len(server.served) == n_pairs + n_probes, "the replies to probes are in the ledger"
    assert contents(tmp_path / "run") == contents(tmp_path / "bare")
    assert not MADE_BY_PROBES & Run(str(tmp_path / "bare")).parts().keys()
    assert found["planted instruction"]["rate"] == found["stuffed query"]["rate"] == 1.0
    assert found["empty chunk"]["rate"] == found["other language"]["rate"] == found["repeated"]["rate"] == 0.0
    assert found["order of examples"]["pairs"] == N_QUERIES
    assert 0 < n_probes <= 9 * 2 * N_QUERIES
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Probes of the judge" in report
    assert "planted instruction" in (tmp_path / "run" / "README.md").read_text()


def test_a_judge_that_reads_the_examples_in_order_is_found_out(call: Call, parts: Path, tmp_path: Path) -> None:
    first = "where do I see how many requests"

    def by_order(body: dict[str, Any]) -> str:
        system = body["messages"][0]["content"]
        is_reversed = system.find(first) > system.find("cancel subscription")
        return "no" if is_reversed else honest(body)

    with FakeChat(model="judge", key=KEY, decides=by_order) as server:
        build(tmp_path / "run", parts, judge_settings(server, PROBES))
        row = rates(call, tmp_path / "run")["order of examples"]
    tables = Run(str(tmp_path / "run")).tables("judge_probes")
    (positives,) = tables.sql(POSITIVES_SQL)["n"].to_pylist()
    assert 0 < positives < N_QUERIES
    assert (row["wrong"], row["pairs"]) == (positives, N_QUERIES)
    (judge_id,) = [
        one["judge_ids"]
        for one in Run(str(tmp_path / "run")).tables("judge_probe").read("judge_probe").to_pylist()
        if one["kind"] == "order of examples"
    ]
    assert judge_id != Run(str(tmp_path / "run")).manifests()["judge"].facts["judge_ids"]


def test_the_gate_holds_a_run_back_whose_judge_is_fooled(call: Call, parts: Path, tmp_path: Path) -> None:
    with FakeChat(model="judge", key=KEY, decides=gullible) as server:
        build(tmp_path / "run", parts, judge_settings(server, PROBES))
        shown = call("validate", tmp_path / "run", "--max-probe-rate", "0.1")
        assert shown.code == 3
        assert "probe_rate is 1.000, but validation.max_probe_rate requires at most 0.1" in shown.err
    with FakeChat(model="judge", key=KEY, decides=honest) as server:
        build(tmp_path / "good", parts, judge_settings(server, PROBES, f"cache.root={tmp_path / 'other'}"))
        shown = call("validate", tmp_path / "good", "--max-probe-rate", "0.1")
        assert shown.code == 0, shown


@pytest.mark.parametrize("cause", ["a limit", "a dead server"])
def test_a_build_whose_judge_stops_at_the_probes_is_written_and_continues(
    call: Call, parts: Path, tmp_path: Path, cause: str
) -> None:
    out = tmp_path / "run"

    def break_late(request: Request) -> str | None:
        return "dropped" if cause == "a dead server" and request.number > 150 else None

    with FakeChat(model="judge", key=KEY, decides=honest, script=break_late) as server:
        limit = "190000" if cause == "a limit" else "10000000"
        limits = [f"judge.token_limit={limit}", "judge.extra_body={max_tokens: 8}", "judge.retry_timeout=1"]
        assignments = [*SMALL, *judge_settings(server, PROBES), *limits]
        paths = ["--docs", parts / "docs", "--queries", parts / "queries.txt", "--out", out]
        shown = call("build", *paths, *options(assignments))
        assert shown.code == 1
        expected = "judge.token_limit 190,000 would be exceeded" if cause == "a limit" else "broke the connection"
        assert expected in shown.err
        assert f"run `darklode judge probe {out}`, or the same command again" in shown.err
        by_kind = {row["kind"]: row for row in Run(str(out)).tables("judge_probe").read("judge_probe").to_pylist()}
        assert by_kind["repeated"]["rate"] == 0.0, "replies so far count"
        assert (by_kind["repeated"]["unanswered"], by_kind["repeated"]["pairs"]) == (0, N_QUERIES)
        last = by_kind["other language"]
        assert (last["rate"], last["low"], last["unanswered"], last["pairs"]) == (None, None, N_QUERIES, 0)
        assert "| other language | false positive rate |" in (out / "README.md").read_text()
        assert "Probe the judge: replies are missing" in (out / "report.html").read_text(), "the next step"
        gate = call("validate", out, "--max-probe-rate", "0.1")
        assert gate.code == 3
        assert "probe_rate is unknown (a kind of probe has missing replies" in gate.err
        n_unanswered = sum(row["unanswered"] for row in by_kind.values())
        server.script = None
        found = rates(call, out, "--set", "judge.token_limit=10000000")
        assert {row["unanswered"] for row in found.values()} == {0}
        assert found["other language"]["rate"] == 0.0
        facts = Run(str(out)).manifests()["judge_probe"].facts
        assert 0 < facts["asked"] <= 2 * n_unanswered, "replies in the ledger are not paid for again"
        assert call("validate", out, "--max-probe-rate", "0.1").code == 0
        shown = call("build", *paths, *options(assignments))
        assert (shown.code, shown.err) == (0, ""), "complete, whatever the limit"


def test_rates_of_an_earlier_judge_are_neither_shown_nor_a_reason_to_publish(
    call: Call, parts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with FakeChat(model="judge", key=KEY, decides=honest) as server:
        build(out, parts, judge_settings(server, PROBES))
        assert call("validate", out, "--max-probe-rate", "0.1").code == 0
    shown = call("build", "--docs", parts / "docs", "--queries", parts / "queries.txt", "--out", out, *options(SMALL))
    assert (shown.code, shown.err) == (0, "")
    assert "Probes of the judge" not in (out / "README.md").read_text()
    gate = call("validate", out, "--max-probe-rate", "0.1")
    assert gate.code == 3
    assert "probe_rate is unknown" in gate.err


def test_an_embedded_judge_is_probed_on_request_only(call: Call, parts: Path, tmp_path: Path) -> None:
    build(tmp_path / "run", parts, [])
    before = contents(tmp_path / "run")
    assert not MADE_BY_PROBES & Run(str(tmp_path / "run")).parts().keys()
    shown = call("validate", tmp_path / "run", "--max-probe-rate", "0.1")
    assert shown.code == 3
    assert (
        "unknown (a kind of probe has missing replies, or none has 10 readable ones: run `darklode judge probe`)"
        in shown.err
    )
    found = rates(call, tmp_path / "run", "--pairs", "12")
    assert found["repeated"]["rate"] == 0.0, "it is a formula"
    assert found["stuffed query"]["rate"] > 0.8, "it counts words"
    assert found["order of examples"]["skipped"]
    after = contents(tmp_path / "run")
    assert {name: after[name] for name in before} == before
    assert read_run(Run(str(tmp_path / "run"))).settings.judge.probe_pairs == 12
    record = (tmp_path / "run" / "settings.yaml").read_text()
    other = call("judge", "probe", tmp_path / "run", "--set", "judge.threshold=0.9")
    assert other.code == 2
    assert "another judge than the one that judged" in other.err
    assert (tmp_path / "run" / "settings.yaml").read_text() == record


def test_recorded_verdicts_are_not_probed(call: Call, parts: Path, tmp_path: Path) -> None:
    build(tmp_path / "run", parts, [])
    verdicts = tmp_path / "verdicts.csv"
    verdicts.write_text("query_id,chunk_id,relevance\nq,c,1\n")
    recorded = ["--set", "judge.kind=recorded", "--set", f"judge.verdicts={verdicts}"]
    shown = call("judge", "probe", tmp_path / "run", *recorded)
    assert (shown.code, shown.err) == (0, ""), shown
    assert "Not probed: judge.kind recorded cannot judge texts that the run does not have." in shown.out


def test_a_run_without_verdicts_is_refused(call: Call, tmp_path: Path) -> None:
    write_run(Run(str(tmp_path / "run")), BenchmarkInputs(docs="d", queries="q"), load_settings())
    shown = call("judge", "probe", tmp_path / "run")
    assert shown.code == 1
    assert "is not judged yet" in shown.err
