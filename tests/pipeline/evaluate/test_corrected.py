"""Figures of systems corrected by reviewers: near the truth where the judge is far from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.corrected import (
    CORRECTED_AUDIT_STAGE,
    CORRECTED_EVALUATION_STAGE,
    LabelledPool,
    corrected_audit,
    corrected_evaluation,
)
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.evaluation_tables import TEST_QUERIES, TEST_RANKINGS
from darklode.schemas.label_tables import UNJUDGED
from darklode.schemas.tables import TABLES
from helpers.reviewed_run import Pairs, answered, honest, key_of, pairs, put_run, sampled
from helpers.runs import execute, put, read

DEPTH = 10


@pytest.fixture
def made() -> Pairs:
    """A judge that calls twice as many pairs relevant as people do."""
    made = pairs({"a": 60}, per_query=20)
    for pair in made.values():
        pair["relevant"] = (pair["probability"] or 0.0) > 0.25
    return made


def put_rankings(run: Run, made: Pairs) -> dict[str, dict[Any, int]]:
    """Rankings by probability, and at random; returns the rank of each pair by system."""
    random, ranks = np.random.default_rng(4), dict[str, dict[Any, int]]()
    for system in ("good", "random"):
        for tenant, query in dict.fromkeys(key[:2] for key in made):
            keys = [key for key in made if key[:2] == (tenant, query)]
            scores = [made[key]["probability"] or 0 if system == "good" else random.random() for key in keys]
            order = np.argsort(scores)[::-1]
            ranks.setdefault(system, {}).update({keys[row]: place for place, row in enumerate(order, 1)})
    rows = [
        {"tenant": key[0], "query_id": key[1], "text_id": key[2], "system": system, "rank": rank, "score": 1.0}
        for system, of_system in ranks.items()
        for key, rank in sorted(of_system.items(), key=lambda item: (item[0][:2], item[1]))
    ]
    put(run, "test_rankings", pa.Table.from_pylist(rows, TEST_RANKINGS.schema))
    for row in rows:
        row |= {"retriever": row.pop("system"), "chunk_id": row.pop("text_id")}
    put(run, "rankings", pa.Table.from_pylist(rows, TABLES["rankings"].schema))
    return ranks


def reviewed_run(run: Run, made: Pairs, **options: Any) -> dict[str, dict[Any, int]]:
    """A run with distinct clusters, rankings, test queries (every second one) and a reviewed sample."""
    put_run(run, made)
    queries = run.tables("queries").read("queries")
    rows = [row | {"cluster_id": number} for number, row in enumerate(queries.to_pylist())]
    put(run, "queries", pa.Table.from_pylist(rows, queries.schema))
    ranks = put_rankings(run, made)
    test = [
        {"tenant": tenant, "query_id": query, "text": "x", "group": query, "kind": None, "shares_positive": None}
        for tenant, query in dict.fromkeys(key[:2] for key in made if int(key[1][1:]) % 2)
    ]
    put(run, "test_queries", pa.Table.from_pylist(test, TEST_QUERIES.schema))
    sample = sampled(run, query_share=1, **options)
    answered(run, honest(made, [key_of(row) for row in sample]))
    return ranks


def evaluated(run: Run) -> dict[tuple[str, str | None, str], dict[str, Any]]:
    settings = EvaluateSettings(measures=("P@5", "nDCG@10", "R@10", "Judged@10"))
    execute(
        run,
        CORRECTED_EVALUATION_STAGE,
        lambda tables, output: corrected_evaluation(tables, output, settings, seed=1),
    )
    rows = read(run, "corrected_evaluation")
    return {(row["system"], row["other"], row["measure"]): row for row in rows if row["tenant"] is None}


def precision(made: Pairs, ranks: dict[Any, int], label: str) -> float:
    """P@5 over the test queries by people's ("true") or the judge's ("relevant") labels."""
    top = [bool(made[key][label]) for key, rank in ranks.items() if rank <= 5 and int(key[1][1:]) % 2]
    return sum(top) / len(top)


def test_test_queries_are_corrected_towards_people(run: Run, made: Pairs) -> None:
    ranks = reviewed_run(run, made, max_pairs=600)
    rows = evaluated(run)
    row = rows["good", None, "P@5"]
    truth, judged = (precision(made, ranks["good"], label) for label in ("true", "relevant"))
    assert row["judge_only"] == pytest.approx(judged)
    assert row["low"] <= truth <= row["high"]
    assert abs(row["value"] - truth) < abs(judged - truth) / 2
    assert row["low"] <= row["value"] <= row["high"]
    difference = rows["random", "good", "P@5"]
    assert difference["low"] <= precision(made, ranks["random"], "true") - truth <= difference["high"] < 0
    assert {measure for _, _, measure in rows} == {"P@5", "nDCG@10", "R@10 (pooled)"}
    assert 0 < row["labels"] < 600, "labels of test queries"
    assert len(rows) == 3 * 3


def test_retrievers_are_corrected_over_all_queries(run: Run, made: Pairs) -> None:
    ranks = reviewed_run(run, made, max_pairs=600)
    execute(
        run,
        CORRECTED_AUDIT_STAGE,
        lambda tables, output: corrected_audit(tables, output, depths=[DEPTH, DEPTH], seed=1),
    )
    rows = {(row["system"], row["other"]): row for row in read(run, "corrected_audit")}
    relevant = [key for key, pair in made.items() if pair["true"]]
    recall = {name: np.mean([ranks[name][key] <= DEPTH for key in relevant]) for name in ranks}
    for name in ("good", "random"):
        row = rows[name, None]
        assert row["low"] <= recall[name] <= row["high"]
        assert (row["measure"], row["labels"]) == (f"R@{DEPTH} (pooled)", 600)
    assert rows["random", "good"]["high"] < 0
    assert set(rows) == {("good", None), ("random", None), ("random", "good")}


def test_few_labels_leave_the_figure_unknown_beside_the_judges(run: Run, made: Pairs) -> None:
    reviewed_run(run, made, max_pairs=8)
    row = evaluated(run)["good", None, "nDCG@10"]
    assert (row["value"], row["low"], row["high"]) == (None, None, None)
    assert row["reason"] == "1 of 10 necessary query clusters with labels"
    assert row["judge_only"] > 0


def test_without_labels_of_the_sample_nothing_is_written(run: Run, made: Pairs) -> None:
    reviewed_run(run, made, max_pairs=20)
    answered(run, [])
    assert evaluated(run) == {}


def test_a_judge_without_probabilities_and_unreadable_verdicts_are_used_by_label(run: Run, made: Pairs) -> None:
    for number, pair in enumerate(made.values()):
        pair["probability"] = None
        pair["relevant"] = None if number % 50 == 0 else pair["relevant"]
    reviewed_run(run, made, max_pairs=600)
    row = evaluated(run)["random", None, "P@5"]
    assert row["low"] <= row["value"] <= row["high"]


def test_labels_stand_for_strata_of_the_same_verdict_without_labels(run: Run, made: Pairs) -> None:
    reviewed_run(run, made, max_pairs=100)
    rows = read(run, "review_sample")
    unlabelled = rows[0]["stratum"]
    answered(run, honest(made, [key_of(row) for row in rows if row["stratum"] != unlabelled]))
    with run.tables("queries", "pool", "verdicts", "review_sample", "review_strata", "reviews").connect() as connection:
        pool = LabelledPool.read(connection)
    weight, is_positive = pool.sample.weight, pool.judged > 0
    assert np.nansum(weight) == pytest.approx(len(made))
    assert np.nansum(weight[is_positive]) == pytest.approx(is_positive.sum())


def test_pairs_that_adaptive_judging_skipped_have_their_predicted_probability(run: Run, made: Pairs) -> None:
    skipped = {key: pair for number, (key, pair) in enumerate(made.items()) if number % 2}
    for pair in skipped.values():
        pair["relevant"] = "unjudged"
    reviewed_run(run, made, max_pairs=100)
    named = ("tenant", "query_id", "chunk_id")
    rows = [dict(zip(named, key, strict=True)) | {"probability": 0.2} for key in skipped]
    put(run, "unjudged", pa.Table.from_pylist(rows, UNJUDGED.schema))
    names = ("queries", "pool", "verdicts", "review_sample", "review_strata", "reviews", "unjudged")
    with run.tables(*names).connect() as connection:
        pool = LabelledPool.read(connection, has_unjudged=True)
    n_predicted = np.isclose(pool.score, np.log(0.25), atol=1e-5).sum()
    assert n_predicted == len(skipped)


def test_each_tenant_has_its_own_figures(run: Run) -> None:
    made = pairs({"a": 60, "b": 40, "small": 6}, per_query=20)
    for (tenant, _, _), pair in made.items():
        pair["true"] = pair["true"] if tenant == "a" else 0 if tenant == "b" and (pair["probability"] or 0) < 0.7 else 1
    ranks = reviewed_run(run, made, max_pairs=900)
    total = evaluated(run)["good", None, "P@5"]
    rows = {
        row["tenant"]: row
        for row in read(run, "corrected_evaluation")
        if (row["system"], row["other"], row["measure"]) == ("good", None, "P@5")
    }
    assert set(rows) == {None, "a", "b", "small"}
    for tenant in ("a", "b"):
        own = {key: rank for key, rank in ranks["good"].items() if key[0] == tenant}
        assert rows[tenant]["low"] <= precision(made, own, "true") <= rows[tenant]["high"]
        assert rows[tenant]["judge_only"] == pytest.approx(precision(made, own, "relevant"))
    assert (rows["small"]["value"], rows["small"]["reason"]) == (None, "3 of 10 necessary query clusters with labels")
    assert rows["a"]["labels"] + rows["b"]["labels"] + rows["small"]["labels"] == total["labels"]
