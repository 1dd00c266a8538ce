"""The measures of systems by part and tenant, and their differences."""

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.paired import holm
from darklode.pipeline.evaluate.stage import EVALUATION_STAGE, EvaluationQueries, evaluate
from darklode.pipeline.retrieve.retrievers.kinds.bm25 import Bm25Kind
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import TABLES
from helpers.evaluated import TENANTS, TOPICS, build_of, ranked
from helpers.runs import execute, put, read

MEASURES = ("nDCG@10", "R@1", "Judged@10")
SETTINGS = EvaluateSettings(measures=MEASURES, n_resamples=50, permutations=200)
SYSTEMS = ["bm25", "bad", "none"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """BM25 finds all; `bad` puts a chunk that is not relevant first for two tenants' first four topics; `none` one."""
    folder = tmp_path_factory.mktemp("evaluated")
    made = build_of(folder / "run")
    names = {tenant: tenant.replace("/", "%2F") for tenant in TENANTS}
    wrong = [f"{names[tenant]}/test%20{topic}" for tenant in TENANTS for topic in TOPICS[:4]]
    lines = [f"{query} Q0 nothing#1 1 9 x\n{query} Q0 {query.split('%20')[1]}#1 2 8 x\n" for query in wrong]
    (folder / "bad.txt").write_text("".join(lines))
    (folder / "none.txt").write_text("acme/test%20login Q0 outside 1 2 x\nacme/test%20login Q0 nothing#1 2 1 x\n")
    ranked(made, {"bm25": Bm25Kind()}, folder / "bad.txt", folder / "none.txt")
    execute(made, EVALUATION_STAGE, lambda tables, output: evaluate(tables, output, SETTINGS, systems=SYSTEMS, seed=3))
    return made


def value(run: Run, measure: str, system: str, part: str = "counted", tenant: str | None = None) -> float:
    (row,) = [
        row
        for row in read(run, "evaluation")
        if (row["measure"], row["system"], row["part"], row["tenant"]) == (measure, system, part, tenant)
    ]
    return float(str(row["value"]))


def test_means_are_those_of_the_hand(run: Run) -> None:
    assert value(run, "R@1", "bm25") == 1.0
    assert value(run, "R@1", "bad") == 0.0
    assert value(run, "nDCG@10", "bad") == pytest.approx(4 / 7 / np.log2(3))
    assert value(run, "nDCG@10", "none") == 0.0
    assert value(run, "nDCG@10", "bad", "shared positive") == pytest.approx(1 / np.log2(3))
    assert value(run, "nDCG@10", "bad", "own positive", TENANTS[1]) == pytest.approx(2 / 5 / np.log2(3))


def test_every_tenant_and_part_is_there_with_its_queries_and_ceiling(run: Run) -> None:
    rows = read(run, "evaluation")
    sizes = {(row["tenant"], row["part"]): row["queries"] for row in rows}
    assert sizes == {
        (None, "counted"): 14,
        (None, "shared positive"): 4,
        (None, "own positive"): 10,
        **{(tenant, "counted"): 7 for tenant in TENANTS},
        **{(tenant, "shared positive"): 2 for tenant in TENANTS},
        **{(tenant, "own positive"): 5 for tenant in TENANTS},
    }
    assert {row["ceiling"] for row in rows if row["measure"] == "nDCG@10"} == {1.0}
    assert {row["ceiling"] for row in rows if row["measure"] == "Judged@10"} == {1.0}  # of what is listed


def test_an_interval_of_one_cluster_is_not_known(run: Run) -> None:
    rows = [row for row in read(run, "evaluation") if row["part"] == "shared positive"]
    assert {row["low"] for row in rows if row["tenant"] == "acme"} == {None}  # both queries are of one cluster
    assert None not in {row["low"] for row in rows if row["tenant"] is None}


def test_values_of_queries_add_up_to_the_means(run: Run) -> None:
    rows = read(run, "evaluation_queries")
    assert len(rows) == 14 * len(SYSTEMS) * len(MEASURES)
    for system in SYSTEMS:
        mine = [row["value"] for row in rows if (row["system"], row["measure"]) == (system, "nDCG@10")]
        assert np.mean(mine) == pytest.approx(value(run, "nDCG@10", system))  # type: ignore[arg-type]


def test_every_two_systems_are_compared_by_every_measure_of_quality(run: Run) -> None:
    rows = [row for row in read(run, "evaluation_pairs") if (row["tenant"], row["part"]) == (None, "counted")]
    assert [(row["other"], row["system"], row["measure"]) for row in rows] == [
        (other, system, measure)
        for other, system in (("bm25", "bad"), ("bm25", "none"), ("bad", "none"))
        for measure in ("nDCG@10", "R@1")
    ]
    first = rows[0]
    assert first["difference"] == pytest.approx(value(run, "nDCG@10", "bad") - 1)
    assert (first["wins"], first["losses"], first["queries"]) == (0, 14, 14)
    assert [row["p_holm"] for row in rows] == holm([row["p"] for row in rows]).tolist()  # type: ignore[misc]


def test_only_unseen_queries_count_where_their_kind_is_known(run: Run, tmp_path: Path) -> None:
    given = run.tables("test_queries").read("test_queries").to_pylist()
    kinds = ["unseen", "variant", "seen", "seen"] + ["unseen"] * 10
    rows = [row | {"kind": kind} for row, kind in zip(given, kinds, strict=True)]
    other = Run(str(tmp_path / "run"))
    put(other, "test_queries", TABLES["test_queries"].rows({key: [row[key] for row in rows] for key in rows[0]}))
    parts = EvaluationQueries.from_tables(other.tables("test_queries")).parts()
    assert {name: int(chosen.sum()) for name, chosen in parts.items()} == {
        "counted": 11,
        "all": 14,
        "variant": 1,
        "seen": 2,
        "shared positive": 3,
        "own positive": 8,
    }
