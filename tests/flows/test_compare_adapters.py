"""compare-adapters on a whole run: methods, controls and bounds in one table and on one page."""

from pathlib import Path

import pytest

from darklode.flows.compare_adapters import compare_adapters
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.train import needs
from darklode.pipeline.train.comparison import efforts
from helpers.adapted import build_to_adapt, model_in
from helpers.runs import read

QUICK = {"adapt": {"steps": 50, "batch": 16, "learning_rates": [3e-4]}}
TRAINED = (
    "linear",
    "linear, negatives never refreshed",
    "linear, labels: BM25's first",
    "linear, labels: sentences of the texts",
    "linear, labels: shuffled",
)
BOUNDS = ("base", "BM25", "BM25 and base, fused", "judge: labelled texts by its probability")


def test_every_system_is_held_against_the_base_and_a_second_call_changes_nothing(tmp_path: Path) -> None:
    build_to_adapt(tmp_path / "run")
    call = [str(tmp_path / "run")], model_in(tmp_path).model, str(tmp_path / "out"), QUICK, ("linear", "closed_form"), 2
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
    took = efforts(run).to_pylist()
    assert [(one["system"], one["seed"]) for one in took if one["system"] == "linear"] == [("linear", 0), ("linear", 1)]
    assert {one["trained"] for one in took} == {8 * 8 + 8}
    assert "What linear learns from the labels is" in page
    assert page.index("## Test queries: own positive") < page.index("## Test queries: shared positive")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "tables").rglob("*.parquet")}
    compare_adapters(*call)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "tables").rglob("*.parquet")} == before


def test_an_unknown_method_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no method luck; there are linear, ffn"):
        compare_adapters([str(tmp_path)], "model", str(tmp_path / "out"), None, ("luck",))


def test_a_missing_package_is_named_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda name: None if name == "peft" else name)
    with pytest.raises(MissingPart, match=r"adapt\.method lora needs peft"):
        compare_adapters([str(tmp_path)], "model", str(tmp_path / "out"))
