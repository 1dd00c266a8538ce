"""compare-adapters on a whole run: methods, controls and bounds in one table and on one page."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from darklode.flows.jobs.compare_adapters import compare_adapters
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.train.data.system_names import LABEL_FREE, TERMS
from darklode.pipeline.train.fit import requirements
from darklode.pipeline.train.release.comparison_page import training_efforts
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.adapted import build_to_adapt, model_in, settings_for
from helpers.fake_chat import FakeChat, Request
from helpers.runs import read

QUICK: dict[str, Any] = {"adapt": {"max_steps": 50, "batch_size": 16, "learning_rates": [3e-4], "unjudged_budget": 0}}
BUDGET = 90
TRAINED = (
    "linear",
    "linear, negatives never refreshed",
    "linear, labels: BM25's first",
    "linear, labels: sentences of the texts",
    "linear, labels: shuffled",
)
BOUNDS = ({*LABEL_FREE} - {TERMS}) | {"judge: labelled texts by its probability"}


@pytest.mark.slow
def test_every_system_is_held_against_the_base_and_a_second_call_changes_nothing(tmp_path: Path) -> None:
    build_to_adapt(tmp_path / "run")
    hybrid = {"adapt": QUICK["adapt"] | {"serve_as": "hybrid"}}
    call = (
        [str(tmp_path / "run")],
        model_in(tmp_path).model,
        str(tmp_path / "out"),
        hybrid,
        ("linear", "closed_form"),
        2,
    )
    assert compare_adapters(*call).endswith("comparison.md")
    run, page = Run(str(tmp_path / "out")), (tmp_path / "out" / "comparison.md").read_text()
    rows = {(row["part"], row["system"], row["measure"]): row for row in read(run, "comparison")}
    assert {system for _, system, _ in rows} == {*TRAINED, *BOUNDS, "closed_form"}
    assert {row["seeds"] for row in rows.values() if row["system"] in TRAINED} == {2}
    assert rows["own positive", "closed_form", "nDCG@10"]["seeds"] == 1
    assert rows["own positive", "base", "nDCG@10"]["difference"] is None
    judged = rows["own positive", "judge: labelled texts by its probability", "nDCG@10"]
    assert (judged["value"], judged["ceiling"], judged["queries"]) == (1, 1, 15)
    assert float(str(judged["p"])) < float(str(judged["p_holm"])) < 0.05
    took = training_efforts(run).to_pylist()
    assert [(one["system"], one["seed"]) for one in took if one["system"] == "linear"] == [("linear", 0), ("linear", 1)]
    assert {one["trained"] for one in took} == {8 * 8 + 8}
    assert "What linear learns from the labels is" in page
    assert "adapt.serve_as is hybrid, but this comparison selects and tests each encoder alone" in page
    assert page.index("## Test queries: own positive") < page.index("## Test queries: shared positive")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "tables").rglob("*.parquet")}
    compare_adapters(*call[:3], QUICK, *call[4:])  # `serve_as` changes nothing
    assert "adapt.serve_as" not in (tmp_path / "out" / "comparison.md").read_text()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "tables").rglob("*.parquet")} == before


@pytest.mark.slow
def test_holes_of_all_systems_go_to_the_runs_own_judge_and_nothing_is_trained_again(tmp_path: Path) -> None:
    source, methods = build_to_adapt(tmp_path / "run"), ("closed_form", "whitened")
    with FakeChat(script=lambda request: "wrong label" if request.pair in silent(request) else None) as server:
        judge = {"kind": "llm", "model": "fake", "base_url": [server.url], "max_attempts": 1}
        settings = settings_for(tmp_path).model_dump(mode="json") | {"judge": judge}
        write_run(source, BenchmarkInputs(docs="docs", queries="queries"), Settings.model_validate(settings))

        def compared(budget: int, out: str = "out") -> Run:
            changed = {"adapt": QUICK["adapt"] | {"unjudged_budget": budget}}
            compare_adapters([source.store.url], model_in(tmp_path).model, str(tmp_path / out), changed, methods, 1)
            return Run(str(tmp_path / out))

        before = share_labelled(compared(0))
        lists = files(tmp_path / "out" / "tables" / "comparison_lists")
        assert server.bodies == [], "a budget of 0 asks nobody"
        out = compared(BUDGET)
        said, asked = read(out, "unjudged_verdicts"), server.requests
        assert len(said) == BUDGET
        unread = [row for row in said if row["relevant"] is None]
        assert 0 < len(unread) < BUDGET / 3, "what could not be read stays without a label"
        assert files(tmp_path / "out" / "tables" / "comparison_lists") == lists, "nothing is trained again"
        sides = {row["system"]: row for row in read(out, "unjudged_results")}
        after = share_labelled(out)
        base = sides["base"]
        row = f"| base | {base['places']} | {base['labelled']} | {base['judged']} | {base['relevant']} |"
        assert row in (tmp_path / "out" / "comparison.md").read_text()
        assert set(sides) == set(before) == {"closed_form", "whitened", *BOUNDS}
        full = {one: row for one, row in sides.items() if row["places"] == 10 * 16}
        assert set(full) >= {"base", "closed_form", "whitened"}, "words alone may find fewer than ten"
        for system, row in full.items():
            assert before[system] == pytest.approx(int(str(row["labelled"])) / int(str(row["places"])))
            now = int(str(row["labelled"])) + int(str(row["judged"]))
            assert after[system] == pytest.approx(now / int(str(row["places"])))
        assert all(after[one] > before[one] for one in ("base", "BM25", "closed_form", "whitened"))
        compared(BUDGET, "again")
        assert server.requests - asked < BUDGET / 3, "the ledger knows what could be read"
    with pytest.raises(MissingPart, match=r"judge llm: no server at .*adapt\.unjudged_budget=0"):
        compared(BUDGET, "away")
    assert not (tmp_path / "away" / "tables" / "comparison_lists").exists(), "before anything is trained"


def silent(request: Request) -> list[str]:
    """The pair itself, of every fifth that is asked for."""
    return [request.pair] if request.number % 5 == 3 else []


def share_labelled(run: Run) -> dict[str, float]:
    """Judged@10 of each system over all test queries that count."""
    rows = [row for row in read(run, "comparison_queries") if row["measure"] == "Judged@10"]
    found = defaultdict[str, list[float]](list)
    for row in rows:
        found[str(row["system"])].append(float(str(row["value"])))
    return {system: sum(values) / len(values) for system, values in found.items()}


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_an_unknown_method_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"unknown method luck; choose from linear, ffn.*, joint"):
        compare_adapters([str(tmp_path)], "model", str(tmp_path / "out"), None, ("luck",))


def test_a_missing_package_is_named_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == "peft" else name)
    with pytest.raises(MissingPart, match=r"adapt\.method lora needs peft"):
        compare_adapters([str(tmp_path)], "model", str(tmp_path / "out"))
