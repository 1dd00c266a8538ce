"""The sample for review: who is in it, what each pair stands for, and what a change of the run leaves as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.validate.sample import REVIEW_SAMPLE_STAGE, review_sample
from darklode.pipeline.validate.strata import MIN_PER_STRATUM
from darklode.schemas.label_tables import UNJUDGED, VERDICTS
from darklode.schemas.settings import ReviewSettings
from darklode.schemas.tables import POOL
from helpers.runs import execute, put, read

NAMES = ("bm25", "dense", "lsa")
Rows = list[dict[str, Any]]


def pairs(sizes: dict[str, int], per_query: int = 40, seed: int = 0) -> Rows:
    """Each tenant's queries with candidates, 15 % relevant, one in fifty unreadable."""
    chance = np.random.default_rng(seed)
    rows = []
    for tenant, queries in sizes.items():
        for query in range(queries):
            for chunk in range(per_query):
                probability = float(np.float32(chance.beta(0.5, 2)))
                found = list(NAMES[: chance.integers(1, 4)]) if chance.random() < 0.7 else [NAMES[chance.integers(3)]]
                relevant = None if chance.random() < 0.02 else probability >= 0.5
                rows.append(
                    {"tenant": tenant, "query_id": f"q{query}", "chunk_id": f"c{chunk}", "retrievers": found}
                    | {"relevant": relevant, "probability": None if relevant is None else probability}
                )
    return rows


def put_run(run: Run, rows: Rows, unjudged: Rows | None = None) -> None:
    keys = {name: [row[name] for row in rows] for name in ("tenant", "query_id", "chunk_id")}
    n = len(rows)
    found = {"retrievers": [row["retrievers"] for row in rows], "best_rank": [1] * n, "fused_score": [0.1] * n}
    put(run, "pool", POOL.rows(keys | found))
    said = [row for row in rows if row not in (unjudged or [])]
    of = {name: [row[name] for row in said] for name in (*keys, "relevant", "probability")}
    put(run, "verdicts", VERDICTS.rows(of | {"judge_id": ["j"] * len(said)}))
    if unjudged is not None:
        put(run, "unjudged", UNJUDGED.rows({name: [row[name] for row in unjudged] for name in (*keys, "probability")}))


def drawn(run: Run, rows: Rows, seed: int = 13, unjudged: Rows | None = None, **options: Any) -> Rows:
    put_run(run, rows, unjudged)
    settings = ReviewSettings.model_validate(options)
    reads = (*REVIEW_SAMPLE_STAGE.reads, *(["unjudged"] if unjudged is not None else []))
    execute(run, replace(REVIEW_SAMPLE_STAGE, reads=reads), lambda t, o: review_sample(t, o, settings, seed=seed))
    return read(run, "review_sample")


def key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["tenant"], row["query_id"], row["chunk_id"]


def test_every_pair_of_the_run_is_stood_for_once(run: Run) -> None:
    rows = pairs({"a": 100, "b": 40})
    sample = drawn(run, rows, max_pairs=300)
    assert len(sample) == 300
    queries = {key(row)[:2] for row in sample}
    assert {tenant: sum(one == tenant for one, _ in queries) for tenant in "ab"} == {"a": 10, "b": 4}
    assert sum(row["weight"] for row in sample) == pytest.approx(len(rows))
    strata = read(run, "review_strata")
    assert sum(row["pairs"] for row in strata if row["retriever"] is None) == len(rows)
    for name in NAMES:
        found = sum(name in row["retrievers"] for row in rows)
        assert sum(row["pairs"] for row in strata if row["retriever"] == name) == found
    said = {None: "unreadable", True: "relevant", False: "not relevant"}
    verdict = {row["stratum"]: row["verdict"] for row in strata}
    known = {key(row): said[row["relevant"]] for row in rows}
    assert all(verdict[row["stratum"]] == known[key(row)] for row in sample)
    by_stratum: dict[str, Rows] = {}
    for row in sample:
        by_stratum.setdefault(row["stratum"], []).append(row)
    for stratum, own in by_stratum.items():
        size = sum(row["pairs"] for row in strata if row["stratum"] == stratum and row["retriever"] is None)
        assert {(row["pairs"], row["sampled"]) for row in own} == {(size, len(own))}
        assert len(own) >= MIN_PER_STRATUM or verdict[stratum] == "unreadable"


def test_half_is_what_the_judge_found_and_the_near_bands_are_drawn_more_often(run: Run) -> None:
    sample = drawn(run, pairs({"a": 400}), max_pairs=400, query_share=0.5)
    verdict = {row["stratum"]: row["verdict"] for row in read(run, "review_strata")}
    assert sum(verdict[row["stratum"]] == "relevant" for row in sample) == 200
    rest = sorted({(row["stratum"], row["weight"]) for row in sample if verdict[row["stratum"]] == "not relevant"})
    assert len(rest) == 8
    near, far = [weight for _, weight in rest[:2]], [weight for _, weight in rest[-2:]]
    assert max(near) * 1.5 < min(far)
    assert len([row for row in sample if row["stratum"] == rest[-1][0]]) > 20


def test_the_order_of_rows_and_other_queries_change_nothing(run: Run, tmp_path: Path) -> None:
    rows = pairs({"a": 60, "b": 30})
    first = drawn(run, rows, max_pairs=120)
    again = drawn(Run(str(tmp_path / "again")), rows[::-1], max_pairs=120)
    assert first == again
    assert first != drawn(Run(str(tmp_path / "other")), rows, seed=14, max_pairs=120)


def test_a_run_that_was_built_again_asks_about_mostly_the_same_pairs(run: Run, tmp_path: Path) -> None:
    rows = pairs({"a": 200})
    first = {key(row) for row in drawn(run, rows, max_pairs=300, query_share=0.5)}
    chance = np.random.default_rng(1)
    for row in rows:
        if row["relevant"] is not None and chance.random() < 0.02:
            row["relevant"] = not row["relevant"]
    second = {key(row) for row in drawn(Run(str(tmp_path / "again")), rows, max_pairs=300, query_share=0.5)}
    assert len(first & second) > 240


def test_pairs_come_query_by_query_and_in_an_order_that_tells_nothing(run: Run) -> None:
    sample = drawn(run, pairs({"a": 200, "b": 100}), max_pairs=1000, query_share=0.5)
    assert [row["position"] for row in sample] == list(range(len(sample)))
    queries = [key(row)[:2] for row in sample]
    changes = [one for one, before in zip(queries, [None, *queries], strict=False) if one != before]
    assert len(changes) == len(set(queries))
    verdict = {row["stratum"]: row["verdict"] for row in read(run, "review_strata")}
    first = [row for row, before in zip(sample, [None, *queries], strict=False) if key(row)[:2] != before]
    share = np.mean([verdict[row["stratum"]] == "relevant" for row in sample])
    of_first = np.mean([verdict[row["stratum"]] == "relevant" for row in first])
    assert abs(of_first - share) < 4 * np.sqrt(share * (1 - share) / len(first))
    assert sum(row["shared"] for row in sample) == 200
    halves = [sum(one[0] == "b" for one in changes[start::2]) for start in (0, 1)]
    assert min(halves) > 15  # tenants alternate: whoever stops early has seen both


def test_within_a_stratum_retrievers_are_drawn_evenly(run: Run) -> None:
    rows = pairs({"a": 100})
    for number, row in enumerate(rows):
        row |= {"retrievers": [NAMES[number % 3]], "relevant": False, "probability": 0.1}
    sample = {key(row) for row in drawn(run, rows, max_pairs=60, query_share=1)}
    counts = [sum(row["retrievers"] == [name] for row in rows if key(row) in sample) for name in NAMES]
    assert sum(counts) == 60
    assert max(counts) - min(counts) <= 2


def test_zero_asks_about_every_candidate_of_the_chosen_queries(run: Run) -> None:
    rows = pairs({"a": 30, "b": 3})
    sample = drawn(run, rows, max_pairs=0)
    queries = {key(row)[:2] for row in sample}
    assert len(queries) == 4
    assert {key(row) for row in sample} == {key(row) for row in rows if key(row)[:2] in queries}


def test_small_tenants_share_their_strata(run: Run) -> None:
    rows = pairs({"large": 200, **{f"t{number}": 2 for number in range(30)}})
    sample = drawn(run, rows, max_pairs=200)
    names = {row["stratum"].split(" ", 1)[1].split(":")[0] for row in sample}
    assert names == {"large", "several tenants"}
    assert sum(row["weight"] for row in sample) == pytest.approx(len(rows))
    assert len({row["tenant"] for row in sample}) > 15


def test_what_adaptive_judging_left_out_is_asked_about_too(run: Run) -> None:
    rows = pairs({"a": 100})
    left = [row for row in rows if row["relevant"] is False and row["probability"] < 0.2]
    sample = drawn(run, rows, unjudged=left, max_pairs=300)
    verdict = {row["stratum"]: row["verdict"] for row in read(run, "review_strata")}
    assert {"relevant", "not relevant", "unjudged"} <= set(verdict.values())
    keys = {key(row) for row in left}
    assert {key(row) in keys for row in sample if verdict[row["stratum"]] == "unjudged"} == {True}
    assert len({row["stratum"] for row in sample if verdict[row["stratum"]] == "unjudged"}) > 2


def test_a_judge_without_probabilities(run: Run) -> None:
    rows = [row | {"probability": None} for row in pairs({"a": 100})]
    sample = drawn(run, rows, max_pairs=100)
    assert len(sample) == 100
    assert sum(row["weight"] for row in sample) == pytest.approx(len(rows))


def test_a_run_without_candidates(run: Run) -> None:
    assert drawn(run, []) == []
    assert read(run, "review_strata") == []


def test_hostile_names_are_names(run: Run) -> None:
    rows = [row | {"tenant": "x' OR 1=1 --\n{}"} for row in pairs({"a": 20})]
    sample = drawn(run, rows, max_pairs=50)
    assert {row["tenant"] for row in sample} == {"x' OR 1=1 --\n{}"}
    assert pa.types.is_string(run.tables("review_sample").read("review_sample").schema.field("stratum").type)
