"""What is handed over: every way to the base, and the one to the adapted encoder."""

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.train.fit.heads import Head
from darklode.pipeline.train.fit.weights import as_rows
from darklode.pipeline.train.release.verdict import VERDICT_STAGE, decide_release, read_verdict, require_lift
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put

FOUND = {"difference": 0.04, "low": 0.02, "high": 0.06, "bounded_low": 0.01, "p": 0.001, "detectable": 0.03}
FOUND |= {"clusters": 40}
VALIDATION = [
    ("base", 0.4, True),
    ("BM25 + base, RRF", 0.6, True),
    ("BM25 + base, weighted", 0.5, True),
    ("BM25", 0.3, True),
    ("perfect", 1.0, False),
]
OTHERS: list[tuple[str, str, dict[str, float]]] = [
    ("adapted", "BM25 + base, RRF", {"difference": -0.03, "low": -0.05, "high": -0.01}),
    ("adapted", "BM25", {"difference": 0.3}),
    ("BM25 + adapted, RRF", "BM25 + base, RRF", {"difference": 0.02, "low": 0.01, "high": 0.03, "bounded_low": 0.005}),
    ("BM25 + adapted, weighted", "BM25 + base, weighted", {"difference": 0.5}),
    ("adapted", "adapted, labels: shuffled", {"difference": 0.01, "low": -0.01, "high": 0.03}),
]


def decided(
    folder: Path,
    *,
    share: float = 1.0,
    folds: int | None = None,
    own: int = 50,
    part: str = "own positive",
    label_bias: str | None = None,
    serve_as: Literal["dense", "hybrid"] = "dense",
    **found: Any,
) -> Run:
    run = Run(str(folder))
    sides = [False] * own + [True] * 10
    queries = [
        {
            "tenant": "t", "query_id": str(number), "text": "x", "group": str(number), "kind": None,
            "shares_positive": shares,
        }
        for number, shares in enumerate(sides)
    ]  # fmt: skip
    trials = [
        {"trial": 0, "setting": "0.0001", "share": one, "step": 5, "validation": 0.5 + 0.1 * (one == share)}
        | {"queries": 1200, "folds": folds}
        for one in (0.0, 1.0)
    ]
    about = {"tenant": None, "system": "adapted", "other": "base", "measure": "nDCG@10", "p_holm": 0.5}
    counted = about | FOUND | {"part": "counted", "difference": 0.9, "queries": own + 10, "wins": 1, "losses": 1}
    pairs = [counted, counted | {"part": part, "queries": own} | FOUND | found]
    pairs += [pairs[1] | FOUND | {"system": system, "other": other} | values for system, other, values in OTHERS]
    known = [row | {"index": 0, "split": "test"} for row in queries]
    put(run, "adaptation_queries", pa.Table.from_pylist(known, schema=TABLES["adaptation_queries"].schema))
    for name, rows in (("test_queries", queries), ("adaptation_trials", trials), ("evaluation_pairs", pairs)):
        put(run, name, pa.Table.from_pylist(rows, schema=TABLES[name].schema))
    put(run, "adapter_weights", as_rows(0, Head(4, 1).state()))
    headroom = [
        {"system": system, "measure": "nDCG@10", "value": value, "queries": 1200, "label_free": label_free}
        for system, value, label_free in VALIDATION
    ]
    put(run, "headroom", pa.Table.from_pylist(headroom, schema=TABLES["headroom"].schema))
    settings = AdaptSettings(serve_as=serve_as)
    execute(run, VERDICT_STAGE, lambda tables, output: decide_release(tables, output, settings, label_bias))
    return run


def test_a_lift_on_unseen_positives_is_shipped(tmp_path: Path) -> None:
    run = decided(tmp_path)
    row = read_verdict(run.tables())
    assert (row["shipped"], row["part"], row["queries"], row["difference"]) == ("adapted", "own positive", 50, 0.04)
    assert require_lift(run).endswith(
        "query_encoder is adapted: nDCG@10 +0.040 (+0.020 to +0.060) on 50 test queries whose clusters and positives "
        "are not in training. Its setting was chosen on 1,200 validation queries. Against BM25 + base, RRF, the best "
        "system without labels on validation: -0.030 (-0.050 to -0.010). In hybrid search, against BM25 + base, RRF: "
        "+0.020 (+0.010 to +0.030). What the labels brought, against shuffled labels: +0.010 (-0.010 to +0.030)."
    )


def test_served_in_hybrid_search_its_fusion_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = read_verdict(decided(tmp_path / "hybrid", serve_as="hybrid", difference=-0.2, low=-0.3, high=-0.1).tables())
    assert (row["shipped"], row["difference"], row["over_hybrid"]) == ("adapted", 0.02, 0.02)
    assert row["reason"].startswith("fused with BM25 (RRF), nDCG@10 +0.020")
    assert (row["label_free"], row["hybrid"], row["control"]) == (
        "BM25 + base, RRF",
        "BM25 + base, RRF",
        "adapted, labels: shuffled",
    )
    alone = read_verdict(decided(tmp_path / "dense", difference=-0.2, low=-0.3, high=-0.1).tables())
    assert (alone["shipped"], alone["difference"], alone["over_hybrid"]) == ("base", -0.2, 0.02)
    for name, value in (("difference", -0.02), ("low", -0.03), ("high", 0.01)):
        monkeypatch.setitem(OTHERS[2][2], name, value)
    refused = read_verdict(decided(tmp_path / "worse", serve_as="hybrid").tables())
    assert refused["shipped"] == "base"
    assert refused["reason"].startswith("no gain: fused with BM25 (RRF), nDCG@10 -0.020")


def test_without_a_deciding_query_nothing_is_compared(tmp_path: Path) -> None:
    row = read_verdict(decided(tmp_path, own=0).tables())
    assert [row[name] for name in ("label_free", "over_label_free", "hybrid", "over_hybrid", "control")] == [None] * 5


def test_labels_that_favour_the_base_are_said_with_either_verdict(tmp_path: Path) -> None:
    bias = "The labels come from the base's own model"
    assert require_lift(decided(tmp_path / "adapted", label_bias=bias)).endswith(f"(-0.010 to +0.030). {bias}.")
    with pytest.raises(NoLift, match=rf"\(-0\.010 to \+0\.030\)\. {bias}$"):
        require_lift(decided(tmp_path / "base", share=0.0, label_bias=bias))


def test_how_a_setting_was_chosen_is_said(tmp_path: Path) -> None:
    run = decided(tmp_path, folds=5)
    assert "chosen by cross-validation, 5 folds of clusters, on 1,200 train and validation queries. " in require_lift(
        run
    )
    row = read_verdict(run.tables())
    assert (row["validation_queries"], row["folds"]) == (1200, 5)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"share": 0.0}, "no setting was better than the base, selected on 1,200 validation queries"),
        ({"share": 0.0, "folds": 5}, "than the base, selected by cross-validation, 5 folds of clusters, on 1,200"),
        ({"own": 0}, "every test query shares a positive with training"),
        ({"low": -0.01, "detectable": 0.08}, r"undecided: .* which can detect 0.131; label about 237 more"),
        ({"low": 0.001, "p": 0.06}, "undecided: .* which can detect 0.101; label about 92 more"),
        (
            {"bounded_low": -0.001},
            "undecided: .*; a rare loss that these queries do not show could outweigh it; label about",
        ),
        ({"difference": -0.01, "low": -0.05}, "no gain"),
        ({"difference": -0.05, "low": -0.07, "high": -0.02}, "it is worse"),
        (
            {"clusters": 9},
            "too few clusters to decide: the 50 test queries .* in 9 clusters, at least 10 are",
        ),
        ({"clusters": 1, "low": None, "high": None, "detectable": None}, "too few clusters to decide"),
    ],
)
def test_the_base_is_shipped_and_the_reason_said(tmp_path: Path, given: dict[str, Any], reason: str) -> None:
    run = decided(tmp_path, **given)
    assert read_verdict(run.tables())["shipped"] == "base"
    with pytest.raises(NoLift, match=reason) as error:
        require_lift(run)
    assert error.value.code == 3
