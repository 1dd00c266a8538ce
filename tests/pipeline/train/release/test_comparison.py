"""What a comparison comes to, of values that are written by hand."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired, holm
from darklode.pipeline.train.release.comparison import COMPARISON_STAGE, comparison
from darklode.pipeline.train.release.comparison_page import by_system, deciding, explain_controls
from darklode.pipeline.train.release.evaluation import MEASURES
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put, read

N = 12


def test_seeds_are_averaged_by_query_and_p_is_corrected_over_systems_and_measures(tmp_path: Path) -> None:
    run, ids = Run(str(tmp_path)), [f"q{number:02}" for number in range(N)]
    asked = {"tenant": ["t"] * N, "query_id": ids, "text": ids, "group": ids}
    own = {"kind": [None] * N, "shares_positive": [False] * N}
    put(run, "test_queries", TABLES["test_queries"].rows(asked | own))
    label = {"tenant": ["t"] * N, "query_id": ids, "text_id": ["t0"] * N, "relevance": [1] * N}
    labels = TABLES["test_labels"].rows(label)
    put(run, "test_labels", labels)
    draws, lists = np.random.default_rng(0), {}
    for system, seed in (("base", 0), ("one", 0), ("one", 1), ("one, labels: shuffled", 0), ("same", 0), ("same", 1)):
        orders = [list(draws.permutation(20)) for _ in ids]
        found = [
            (query, at + 1, f"t{text}") for query, of in zip(ids, orders, strict=True) for at, text in enumerate(of)
        ]
        lists[system, seed] = pa.table([*zip(*found, strict=True)], ["query_id", "rank", "text_id"])
    lists["same", 0] = lists["same", 1] = lists["base", 0]
    values = {one: compute_measures([of], labels, ids, MEASURES) for one, of in lists.items()}
    table = pa.concat_tables(
        TABLES["comparison_lists"].rows(
            {name: of[name] for name in of.column_names}
            | {name: pa.repeat(one, of.num_rows) for name, one in (("tenant", "t"), ("system", system), ("seed", seed))}
        )
        for (system, seed), of in lists.items()
    )
    put(run, "comparison_lists", table.take(pa.array(draws.permutation(table.num_rows))))
    execute(run, COMPARISON_STAGE, lambda tables, output: comparison(tables, output, EvaluateSettings(), seed=5))
    found = {(row["system"], row["measure"]): row for row in read(run, "comparison")}
    mine, base = (values["one", 0] + values["one", 1]) / 2, values["base", 0]
    wanted = compare_paired(
        mine, base, np.arange(N), ResamplingSettings(EvaluateSettings().n_resamples, EvaluateSettings().permutations, 5)
    )
    control = compare_paired(
        values["one, labels: shuffled", 0], base, np.arange(N), ResamplingSettings(1000, 10_000, 5)
    )
    over = compare_paired(mine, values["one, labels: shuffled", 0], np.arange(N), ResamplingSettings(1000, 10_000, 5))
    corrected = holm([*wanted.p[:3], *control.p[:3], 1, 1, 1])
    given = {
        (row["system"], row["seed"], row["query_id"], row["measure"]): row["value"]
        for row in read(run, "comparison_queries")
    }
    assert given["one", 1, "q03", "nDCG@10"] == values["one", 1][3, 0]
    assert len(given) == len(lists) * N * len(MEASURES)
    equal = found["same", "nDCG@10"]
    assert [equal[name] for name in ("difference", "low", "high", "p", "seeds")] == [0, 0, 0, 1, 2]
    for at, measure in enumerate(MEASURES[:3]):
        row = found["one", measure]
        given = [row[name] for name in ("value", "difference", "low", "high", "p_holm", "seeds", "ceiling")]
        assert given == pytest.approx(
            [mine[:, at].mean(), wanted.mean[at], wanted.low[at], wanted.high[at], corrected[at], 2, 1]
        )
        left = [row[name] for name in ("over_control", "over_low", "over_high")]
        assert left == pytest.approx([over.mean[at], over.low[at], over.high[at]])
    assert found["one", "Judged@10"]["difference"] is None
    assert deciding(run) == "counted"
    assert sum(one.startswith("one is not seen to gain: the same positives") for one in explain_controls(run)) == 1
    assert {row["system"]: row["nDCG@10"] for row in by_system(run, "counted").to_pylist()} == pytest.approx(
        {
            "one": mine[:, 0].mean(),
            "base": base[:, 0].mean(),
            "same": base[:, 0].mean(),
            "one, labels: shuffled": values["one, labels: shuffled", 0][:, 0].mean(),
        }
    )


def test_what_needs_no_labels_is_said_of_the_lift(tmp_path: Path) -> None:
    run = Run(str(tmp_path))
    rows = [
        {"part": "own positive", "system": system, "measure": "nDCG@10", "value": 0.5, "ceiling": 1.0, "seeds": 3}
        | {"queries": 90, "clusters": 80, "p": 0.01, "p_holm": 0.1, "over_p": 0.01}
        | dict(zip(("difference", "low", "high", "over_control", "over_low", "over_high"), given, strict=True))
        for system, given in {
            "linear": (0.034, 0.02, 0.05, 0.015, -0.001, 0.03),
            "ffn": (0.04, 0.02, 0.06, 0.021, 0.01, 0.03),
            "linear, labels: shuffled": (0.019, 0.01, 0.03, None, None, None),
            "linear, labels: sentences of the texts": (0.002, -0.01, 0.01, 0.0, -0.01, 0.01),
        }.items()
    ]
    put(run, "comparison", pa.Table.from_pylist(rows, schema=TABLES["comparison"].schema))
    assert explain_controls(run) == [
        "+0.019 of linear's +0.034 needs no labels: the same positives, each at some other query, give +0.019 "
        "(+0.010 to +0.030).",
        "linear is not seen to gain: sentences that ask for their own texts give +0.002 (-0.010 to +0.010).",
        "What ffn learns from the labels is worth: +0.021 (+0.010 to +0.030) over shuffled ones.",
        "What linear learns from the labels is not shown to be worth anything: +0.015 (-0.001 to +0.030) over "
        "shuffled ones.",
    ]
    doubtful = [row | {"over_p": 0.03} for row in rows]
    put(run, "comparison", pa.Table.from_pylist(doubtful, schema=TABLES["comparison"].schema))
    assert not any("is worth:" in said for said in explain_controls(run)), "two methods were tested"
    few = pa.Table.from_pylist([row | {"clusters": 9} for row in rows], schema=TABLES["comparison"].schema)
    put(run, "comparison", few)
    assert not any("needs no" in said or "is worth:" in said for said in explain_controls(run)), "too few to tell"
