"""Human labels, a fitted threshold and a panel, from the settings to the tables."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darklode.flows.config import load_settings
from darklode.flows.jobs.build_benchmark import steps
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.card import card
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.commands import Call, build_without_prefect
from helpers.fake_chat import FakeChat

SUBJECTS = "invoice webhook token refund export locale agent ticket survey macro queue article".split()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    (folder / "docs").mkdir()
    for number, subject in enumerate(SUBJECTS):
        others = ", ".join(SUBJECTS[number + 1 : number + 2 + number % 5])
        text = f"# {subject}\n\nTo rotate the {subject}, open its page. To delete it, ask an admin. See {others}."
        (folder / "docs" / f"{subject}.md").write_text(text)
    (folder / "queries.txt").write_text("".join(f"how do I rotate the {subject}\n" for subject in SUBJECTS))
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def servers() -> Iterator[list[FakeChat]]:
    with FakeChat(model="first") as first, FakeChat(model="second") as second:
        yield [first, second]


def chosen(*assignments: str) -> Settings:
    return load_settings(
        assignments=["clean.keep_all=true", "pool.retrievers=[bm25, ppmi]", "pool.depth=12", *assignments]
    )


def build(out: Path, source: Path, settings: Settings) -> list[str]:
    write_run(Run(str(out)), BenchmarkInputs(docs=str(source / "docs"), queries=str(source / "queries.txt")), settings)
    return build_without_prefect(out, source / "docs", source / "queries.txt", settings)


def rows(out: Path, table: str, *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Run(str(out)).tables(table).read(table, list(columns) or None).to_pylist()
    return found


def label(out: Path, file: Path, share: float) -> str:
    """People who find the pairs of this share of the probabilities relevant, the highest."""
    ascending = sorted({row["probability"] for row in rows(out, "verdicts")})
    cut = ascending[int(len(ascending) * (1 - share))]
    with file.open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["query_id", "chunk_id", "relevance"])
        for row in rows(out, "verdicts"):
            writer.writerow([row["query_id"], row["chunk_id"], int(row["probability"] >= cut)])
    return f"judge.human_labels={json.dumps(str(file))}"


@pytest.mark.slow
def test_a_fitted_threshold_is_applied_only_where_it_is_asked_for(source: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "run"
    build(out, source, chosen())
    before = rows(out, "verdicts")
    human = label(out, tmp_path / "labels.csv", 0.3)

    redone = build(out, source, chosen(human))
    assert redone[:2] == ["calibrate", "label"], "people's labels correct the probabilities that labels depend on"
    assert "judge" not in redone
    assert rows(out, "verdicts") == before
    (compared,) = rows(out, "calibration")
    fitted = compared["fitted_threshold"]
    assert compared["fitted_kappa"] == 1.0
    assert compared["kappa"] < 1.0
    shown = call("judge", "calibration", out)
    assert (shown.code, shown.err) == (0, "")
    assert "Reliability of the judge's probabilities" in shown.out
    text = card(Run(str(out)), chosen(human))
    assert "## Judge against human labels" in text
    assert "## Reliability of the judge's probabilities" in text

    assert "judge" in build(out, source, chosen(human, "judge.threshold=fitted"))
    likely = [row["probability"] >= np.float32(fitted) for row in before]
    assert [row["relevant"] for row in rows(out, "verdicts")] == likely
    assert rows(out, "calibration")[0]["kappa"] == 1.0
    build(tmp_path / "by_hand", source, chosen(f"judge.threshold={fitted}"))
    assert rows(tmp_path / "by_hand", "verdicts") == rows(out, "verdicts")
    assert build(out, source, chosen(human, "judge.threshold=fitted")) == []

    build(out, source, chosen())
    assert rows(out, "calibration") == []
    assert rows(out, "verdicts") == before


@pytest.mark.slow
def test_changed_labels_fit_another_threshold_and_judge_anew(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    build(out, source, chosen())
    human = label(out, tmp_path / "labels.csv", 0.3)
    build(out, source, chosen(human, "judge.threshold=fitted"))
    first = rows(out, "verdicts", "judge_id")
    label(out, tmp_path / "labels.csv", 0.6)
    assert {"calibrate", "judge"} <= set(build(out, source, chosen(human, "judge.threshold=fitted")))
    assert rows(out, "verdicts", "judge_id") != first


def llm(server: FakeChat, name: str) -> dict[str, Any]:
    return {"kind": "llm", "model": name, "base_url": server.url, "retry_timeout": 5}


@pytest.mark.slow
def test_a_panel_of_two_servers_and_a_formula(
    source: Path, tmp_path: Path, servers: list[FakeChat], call: Call
) -> None:
    out = tmp_path / "run"
    one = [f"judge.{name}={value}" for name, value in llm(servers[0], "first").items()]
    one.append("judge.probe_pairs=0")  # probes are drawn by label, so another vote asks for others
    others = [llm(servers[1], "second"), {"kind": "embedded"}]
    settings = chosen(*one, f"judge.panel={json.dumps(others)}")
    build(out, source, settings)
    verdicts, own = rows(out, "verdicts"), rows(out, "panel_verdicts")
    assert len(own) == 3 * len(verdicts) > 0
    (judge_id,) = {row["judge_id"] for row in verdicts}
    members = {row["judge_id"] for row in own}
    assert sorted(one.split(":")[0] for one in members) == ["embedded-3", "llm-1", "llm-1"]
    assert all(member in judge_id for member in members)
    text = card(Run(str(out)), settings)
    assert "no LLM and no human" not in text
    assert "## Pairwise agreement within the panel" in text
    shown = call("judge", "calibration", out)
    assert (shown.code, shown.err) == (0, "")
    assert "Agreement of the panel" in shown.out
    assert len([line for line in call("judge", "stats", out).out.splitlines() if line.startswith("llm-1:")]) == 2

    for server in servers:
        server.asked.clear()
    again = chosen(*one, f"judge.panel={json.dumps(others)}", "judge.vote=mean", "judge.panel_weights=[1, 1, 0.5]")
    assert "judge" in build(out, source, again)
    assert not [pair for server in servers for pair in server.asked if "how do I rotate" in pair]
    assert rows(out, "panel_verdicts") == own


def test_a_judge_alone_has_the_fingerprint_that_it_had(source: Path, tmp_path: Path) -> None:
    (step,) = [
        step
        for step in steps(str(source / "docs"), str(source / "queries.txt"), chosen())
        if step.stage.name == "judge"
    ]
    assert step.plan(Run(str(tmp_path))).settings == {"kind": "embedded", "threshold": 0.33}
    assert step.stage.reads == ("queries", "chunks", "pool")
