"""Pooling against plain loops: who is a candidate, with which score, in which order."""

import random
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pydantic import ValidationError

import darklode.pipeline.retrieve.pool
from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.retrieve.pool import POOL_STAGE, pool
from darklode.schemas.label_tables import JUDGED_CHUNKS
from darklode.schemas.pooling import PoolSettings
from darklode.schemas.tables import QUERIES, RANKINGS
from helpers.runs import execute, put, read

Lists = dict[tuple[str, str, str], list[str]]


def rankings(lists: Lists) -> pa.Table:
    rows = [(*key, rank, chunk) for key, chunks in lists.items() for rank, chunk in enumerate(chunks, start=1)]
    names = ("tenant", "query_id", "retriever", "rank", "chunk_id")
    columns = {name: [row[number] for row in rows] for number, name in enumerate(names)}
    return RANKINGS.rows(columns | {"score": [1.0 / row[3] for row in rows]})


def queries(keys: set[tuple[str, str]]) -> pa.Table:
    n, ordered = len(keys), sorted(keys)
    named = {"tenant": [key[0] for key in ordered], "query_id": [key[1] for key in ordered], "text": ["x"] * n}
    fixed = {"n_words": [1] * n, "language": ["en"] * n, "language_score": [1.0] * n, "cluster_id": [0] * n}
    return QUERIES.rows(named | fixed | {"n_represented": [1] * n, "split": ["train"] * n})


def pooled(run: Run, lists: Lists, unserved: int = 0, **options: object) -> Manifest:
    put(run, "rankings", rankings(lists))
    put(run, "queries", queries({key[:2] for key in lists} | {("t", f"unserved {n}") for n in range(unserved)}))
    chosen = PoolSettings.model_validate(options)
    return execute(run, POOL_STAGE, lambda tables, output: pool(tables, output, chosen))


def reference(lists: Lists, chosen: PoolSettings) -> list[dict[str, object]]:
    rows = []
    for tenant, query in sorted({key[:2] for key in lists}):
        ranks: dict[str, dict[str, int]] = {}
        for (of_tenant, of_query, retriever), chunks in lists.items():
            if (of_tenant, of_query) == (tenant, query):
                for rank, chunk in enumerate(chunks, start=1):
                    ranks.setdefault(chunk, {})[retriever] = rank
        candidates = []
        for chunk, found in ranks.items():
            score = sum(round(Decimal(1.0 / (60 + rank)), 12) for rank in found.values())
            near = sorted(name for name, rank in found.items() if rank <= chosen.depth)
            row = {"tenant": tenant, "query_id": query, "chunk_id": chunk, "retrievers": near}
            candidates.append(row | {"best_rank": min(found.values()), "fused_score": float(np.float32(score))})
        candidates.sort(key=lambda row: (-row["fused_score"], row["chunk_id"]))
        if chosen.method == "union":
            rows += [row for row in candidates if row["best_rank"] <= chosen.depth]
        else:
            rows += candidates[: chosen.budget]
    return rows


def world(number: int) -> Lists:
    """Lists of a few tenants over the same few ids, so that ties, gaps and full overlap all occur."""
    chance = random.Random(number)
    lists: Lists = {}
    for tenant in ("a", "B", "ä")[: chance.randint(1, 3)]:
        for query in range(chance.randint(1, 4)):
            chunks = [f"c{n}" for n in range(chance.randint(1, 12))]
            for retriever in ("bm25", "dense", "two words")[: chance.randint(1, 3)]:
                ranked = chance.sample(chunks, chance.randint(0, len(chunks)))
                if ranked:
                    lists[tenant, f"q{query}", retriever] = ranked
    return lists


@examples(max_examples=16, deadline=None)
@given(
    number=st.integers(0, 2**32),
    depth=st.integers(1, 8),
    budget=st.integers(1, 8),
    method=st.sampled_from(["union", "rrf"]),
)
def test_the_pool_is_that_of_plain_loops(
    number: int, depth: int, budget: int, method: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lists, run = world(number), Run(str(tmp_path_factory.mktemp("pool")))
    options = {"depth": depth, "budget": budget, "method": method}
    pooled(run, lists, **options)
    assert read(run, "pool") == reference(lists, PoolSettings.model_validate(options))


def seven(overlap: bool) -> Lists:
    """Seven lists, 420 deep: the same one, or no two with a common chunk."""
    return {
        ("t", "q", f"r{number}"): [f"c{0 if overlap else number}-{rank:03d}" for rank in range(420)]
        for number in range(7)
    }


@pytest.mark.parametrize(("overlap", "size"), [(True, 60), (False, 420)])
def test_seven_lists_pool_between_60_and_420(run: Run, overlap: bool, size: int) -> None:
    manifest = pooled(run, seven(overlap))
    assert manifest.rows("pool") == size
    assert {len(row["retrievers"]) for row in read(run, "pool")} == {7 if overlap else 1}  # type: ignore[arg-type]
    assert max(row["best_rank"] for row in read(run, "pool")) == 60  # type: ignore[type-var]


@pytest.mark.parametrize(("budget", "size"), [(150, 150), (5_000, 2_940)])
def test_fusion_takes_the_best_of_the_full_lists(run: Run, budget: int, size: int) -> None:
    pooled(run, seven(overlap=False), method="rrf", budget=budget)
    rows = read(run, "pool")
    assert len(rows) == size
    assert [row["retrievers"] == [] for row in rows] == [int(str(row["best_rank"])) > 60 for row in rows]


def test_equal_scores_stand_in_the_order_of_ids(run: Run) -> None:
    pooled(run, {("t", "q", "x"): ["b", "Z", "ä"], ("t", "q", "y"): ["ä", "Z", "b"]}, method="rrf", budget=2)
    assert [row["chunk_id"] for row in read(run, "pool")] == ["b", "ä"]
    pooled(run, {("t", "q", "x"): ["b"], ("t", "q", "y"): ["ä"], ("t", "q", "z"): ["Z"]})
    assert [row["chunk_id"] for row in read(run, "pool")] == ["Z", "b", "ä"]


def test_a_pool_deeper_than_the_lists_is_refused(run: Run) -> None:
    with pytest.raises(ValidationError, match="depth 61 must not exceed search_depth 60"):
        pooled(run, seven(overlap=True), depth=61, search_depth=60)
    assert pooled(run, seven(overlap=True), depth=60, search_depth=60).rows("pool") == 60


def test_a_query_without_candidates_is_counted(run: Run) -> None:
    step = pooled(run, seven(overlap=True), unserved=3).funnel[0]
    assert (step.rows_in, step.rows_out, step.dropped) == (4, 60, {"no candidate found": 3})
    assert pooled(run, seven(overlap=True)).funnel[0].dropped == {}


def test_no_lists_no_pool(run: Run) -> None:
    manifest = pooled(run, {}, unserved=2)
    assert (read(run, "pool"), manifest.funnel[0].dropped) == ([], {"no candidate found": 2})


def many_lists() -> dict[tuple[str, str, str], list[str]]:
    chance, lists = random.Random(1), {}
    for query in range(150):
        base = [f"c{n}" for n in chance.sample(range(3_000), 200)]
        for number in range(7):
            lists["t", f"q{query}", f"r{number}"] = chance.sample(base, 150)
    return lists


def test_what_does_not_fit_into_memory_goes_to_disk_and_changes_no_byte(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = pooled(run, many_lists()).outputs
    connect = duckdb.connect
    monkeypatch.setattr("darklode.pipeline.base.artifacts.database.MEMORY_LIMIT", "12MB")
    monkeypatch.setattr(duckdb, "connect", lambda config: connect(config=config | {"threads": 1}))
    assert pooled(run, many_lists()).outputs == usual


def test_threads_and_the_order_of_rows_change_no_byte(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(darklode.pipeline.retrieve.pool, "PART_ROWS", 10_000)
    lists = many_lists()
    connect, seen = duckdb.connect, []
    for threads in (1, 2, 5):
        monkeypatch.setattr(duckdb, "connect", lambda config, n=threads: connect(config=config | {"threads": n}))
        seen.append(pooled(run, lists).outputs)
        lists = dict(reversed(lists.items()))
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]["pool"]) == 3
    assert {part.rows for part in seen[0]["pool"][:-1]} == {10_000}


def test_judged_chunks_are_candidates_whether_or_not_they_were_found(tmp_path: Path) -> None:
    run = Run(str(tmp_path))
    put(run, "rankings", rankings({("t", "q1", "bm25"): ["a", "b", "c"]}))
    put(run, "queries", queries({("t", "q1"), ("t", "q2")}))
    judged = [("q1", "a", 1), ("q1", "c", 0), ("q1", "far", 2), ("q1", "sibling", None), ("q2", "far", 1)]
    names = ("query_id", "chunk_id", "relevance")
    rows = [dict(zip(names, row, strict=True)) | {"tenant": "t"} for row in judged]
    put(run, "judged_chunks", pa.Table.from_pylist(rows, schema=JUDGED_CHUNKS.schema))
    settings = PoolSettings(depth=2)
    execute(run, POOL_STAGE.reading("judged_chunks"), lambda tables, output: pool(tables, output, settings))
    columns = ("query_id", "chunk_id", "retrievers", "best_rank")
    assert [tuple(row[name] for name in columns) for row in read(run, "pool")] == [
        ("q1", "a", ["bm25"], 1),
        ("q1", "b", ["bm25"], 2),
        ("q1", "c", [], 3),
        ("q1", "far", [], None),
        ("q2", "far", [], None),
    ]
    assert read(run, "pool")[3]["fused_score"] == 0
