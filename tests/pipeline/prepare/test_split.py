"""Splits: shares as near as whole clusters allow, no cluster on two sides, and no tenant moved by another."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.prepare.split import SPLIT, assign, assign_with_source_splits, split
from darklode.schemas.label_tables import JUDGMENTS
from darklode.schemas.settings import SplitSettings
from darklode.schemas.tables import CLEANED_QUERIES, QUERIES, TABLES
from helpers.runs import execute, put, read

SIDES = ("test", "validation", "train")

SHARE = st.floats(0, 1)
CLUSTERS = st.lists(st.integers(0, 12), min_size=1, max_size=80)


def cleaned(clusters: dict[str, list[int]]) -> pa.Table:
    rows = [
        (tenant, f"q{number:03d}", cluster) for tenant in clusters for number, cluster in enumerate(clusters[tenant])
    ]
    n = len(rows)
    tenants, ids, numbers = ([row[column] for row in rows] for column in range(3))
    fixed = {"text": [f"text of {name}" for name in ids], "n_words": [3] * n, "language": ["en"] * n}
    counted = {"language_score": [1.0] * n, "n_represented": [1] * n}
    return CLEANED_QUERIES.rows({"tenant": tenants, "query_id": ids, "cluster_id": numbers} | fixed | counted)


def splits(run: Run, clusters: dict[str, list[int]], seed: int = 13) -> dict[tuple[object, object], object]:
    done(run, clusters, seed)
    return {(row["tenant"], row["query_id"]): row["split"] for row in read(run, "queries")}


def done(run: Run, clusters: dict[str, list[int]], seed: int = 13) -> Manifest:
    put(run, "cleaned_queries", cleaned(clusters))
    return execute(run, SPLIT, lambda tables, output: split(tables, output, SplitSettings(), seed=seed))


def test_generated_queries_are_learned_from_and_never_held_out(tmp_path: Path) -> None:
    run = Run(str(tmp_path))
    asked = {"a": list(range(40))}
    before = splits(run, asked)
    held = next(query for (_, query), side in before.items() if side == "test")
    texts = {"new": "nobody asked this", "near": f"{held} text of", "other": "of a stranger", "lost": "not kept"}
    rows = [
        {"tenant": "b" if name == "other" else "a", "query_id": name, "text": text, "n_words": 3, "language": "en",
         "language_score": 1.0, "cluster_id": 0, "n_represented": 0, "split": "train"}
        for name, text in texts.items()
    ]  # fmt: skip
    more = Run(str(tmp_path / "generated"))
    put(more, "queries", pa.Table.from_pylist(rows, QUERIES.schema))
    fates = [
        {"tenant": row["tenant"], "query_id": row["query_id"], "chunk_id": "c", "text": row["text"], "source": "ict",
         "generator_id": "g", "round_trip_rank": 1, "judged": True, "kept": row["query_id"] != "lost", "reason": None}
        for row in rows
    ]  # fmt: skip
    put(more, "generated_queries", pa.Table.from_pylist(fates, TABLES["generated_queries"].schema))
    settings = SplitSettings(generated_queries=more.store.url)
    manifest = execute(run, SPLIT, lambda tables, output: split(tables, output, settings, seed=13))
    found = {(row["tenant"], row["query_id"]): row for row in read(run, "queries")}
    assert {one: row["split"] for one, row in found.items()} == before | {("a", "new"): "train"}
    assert found["a", "new"]["cluster_id"] == 40, "no real query's cluster"
    assert manifest.funnel[0].dropped == {"generated, and near to a held-out query or of another tenant": 2}


@given(clusters=CLUSTERS, test=SHARE, validation=SHARE, seed=st.integers(0, 2**63))
def test_shares_are_met_as_nearly_as_whole_clusters_allow(
    clusters: list[int], test: float, validation: float, seed: int
) -> None:
    settings = SplitSettings(test_share=test, validation_share=validation)
    given_splits = assign(np.array(clusters, np.int32), settings, seed)
    assert given_splits.shape == (len(clusters),)
    sides = Counter(map(str, given_splits))
    assert set(sides) <= set(SIDES)
    largest = max(Counter(clusters).values())
    wanted = {"test": test, "train": (1 - test) * (1 - validation)}
    for side, share in wanted.items():
        assert abs(sides[side] - share * len(clusters)) <= largest / 2 + 1e-9
    assert abs(sides["validation"] - (1 - test) * validation * len(clusters)) <= largest + 1e-9
    per_cluster = {(cluster, str(side)) for cluster, side in zip(clusters, given_splits, strict=True)}
    assert len(per_cluster) == len(set(clusters))


@given(clusters=CLUSTERS, seed=st.integers(0, 99), order=st.randoms(use_true_random=False))
def test_a_split_follows_the_cluster_not_the_place(clusters: list[int], seed: int, order: object) -> None:
    rows = np.random.default_rng(seed).permutation(len(clusters))
    numbers = np.array(clusters, np.int32)
    given_splits = assign(numbers, SplitSettings(), seed)
    assert assign(numbers, SplitSettings(), seed).tolist() == given_splits.tolist()
    assert assign(numbers[rows], SplitSettings(), seed).tolist() == given_splits[rows].tolist()


def test_every_query_of_its_own_cluster_meets_the_shares_to_one() -> None:
    sides = Counter(map(str, assign(np.arange(1_000, dtype=np.int32), SplitSettings(), 13)))
    assert sides == {"test": 250, "validation": 75, "train": 675}


def test_another_seed_is_another_split() -> None:
    numbers = np.arange(100, dtype=np.int32)
    assert assign(numbers, SplitSettings(), 1).tolist() != assign(numbers, SplitSettings(), 2).tolist()


@pytest.mark.parametrize("size", [1, 5])
def test_a_single_cluster_trains(size: int) -> None:
    assert set(assign(np.zeros(size, np.int32), SplitSettings(), 13)) == {"train"}


def test_queries_keep_their_columns_and_within_a_split_their_order(run: Run) -> None:
    manifest = done(run, {"b": [1, 0, 1], "a": [4]})
    rows = read(run, "queries")
    given = read(run, "cleaned_queries")
    kept = [{key: row[key] for key in row if key != "split"} for row in rows]
    places = [
        ("train", "validation", "test").index(row["split"]) * len(given) + given.index(kept[n])
        for n, row in enumerate(rows)
    ]
    assert places == sorted(places)
    assert len(rows) == len(given)
    folders = [part.file.split("/")[2] for part in run.parts()["queries"]]
    assert folders == list(dict.fromkeys(row["split"] for row in rows))
    assert [row["split"] for row in rows if row["tenant"] == "a"] == ["train"]
    assert [(step.rows_in, step.rows_out) for step in manifest.funnel] == [(4, 4)]


def test_clusters_that_near_duplicates_join_are_one(run: Run) -> None:
    n = 60
    texts = [f"intent{number} {chr(97 + number % 26) * 6}" for number in range(n)]
    slips = [f"{text}?" if number % 2 else f"{text[:-1]}" for number, text in enumerate(texts)]
    given = cleaned({"a": list(range(2 * n))})
    put(run, "cleaned_queries", given.set_column(2, given.schema.field(2), pa.array([*texts, *slips])))
    execute(run, SPLIT, lambda tables, output: split(tables, output, SplitSettings(), seed=13))
    found = {row["text"]: row["split"] for row in read(run, "queries")}
    assert all(found[text] == found[slip] for text, slip in zip(texts, slips, strict=True))
    assert set(found.values()) == set(SIDES)


def test_no_queries_no_splits(run: Run) -> None:
    assert splits(run, {}) == {}


def test_a_tenant_more_moves_nobody_else(run: Run) -> None:
    few = {"a": list(range(40)), "c": [1, 1, 2, 3, 5, 8]}
    before = splits(run, few)
    after = splits(run, {"b": list(range(40)), **few, "d": [0]})
    assert {key: after[key] for key in before} == before
    assert len(after) == len(before) + 41


def test_equal_clusters_of_two_tenants_are_split_apart(run: Run) -> None:
    found = splits(run, {"a": list(range(60)), "b": list(range(60))})
    assert [found["a", f"q{n:03d}"] for n in range(60)] != [found["b", f"q{n:03d}"] for n in range(60)]


def test_the_same_run_twice_is_the_same_bytes(run: Run) -> None:
    first = done(run, {"a": list(range(30))})
    assert done(run, {"a": list(range(30))}).outputs == first.outputs
    assert done(run, {"a": list(range(30))}, seed=14).outputs != first.outputs


def test_the_splits_of_a_source_are_kept_and_the_rest_follows_its_clusters() -> None:
    clusters = np.repeat(np.arange(20), 5)
    given = np.full(100, "", "<U10")
    given[[0, 5]] = "test"
    given[10:90] = "train"
    sides = assign_with_source_splits(clusters, given, SplitSettings(validation_share=0.25), seed=3)
    assert set(sides[:10]) == {"test"}, "they share a cluster with a test query"
    assert set(sides[10:]) == {"train", "validation"}, "the source has its own test set"
    assert all(len(set(sides[start : start + 5])) == 1 for start in range(10, 100, 5)), "whole clusters"
    assert 10 <= np.sum(sides == "validation") <= 35


def test_given_training_queries_alone_leave_test_and_validation_to_the_clusters() -> None:
    clusters = np.arange(200)
    given = np.full(200, "train", "<U10")
    settings = SplitSettings(test_share=0.3)
    assert list(assign_with_source_splits(clusters, given, settings, 3)) == list(assign(clusters, settings, 3))


def test_judgments_name_splits_in_the_stage(tmp_path: Path) -> None:
    run = Run(str(tmp_path))
    put(run, "cleaned_queries", cleaned({"a": list(range(30)), "b": list(range(30))}))
    judged = [{"tenant": "a", "query_id": f"q{n:03d}", "split": "test" if n < 3 else "train"} for n in range(30)]
    rows = [row | {"item_id": "d", "level": "document", "relevance": 1} for row in judged]
    put(run, "judgments", pa.Table.from_pylist(rows, schema=JUDGMENTS.schema))
    stage = SPLIT.reading("judgments")
    execute(run, stage, lambda tables, output: split(tables, output, SplitSettings(), seed=13))
    sides = {(row["tenant"], row["query_id"]): row["split"] for row in read(run, "queries")}
    assert {query for (tenant, query), side in sides.items() if tenant == "a" and side == "test"} == {
        "q000",
        "q001",
        "q002",
    }
    assert sum(side == "test" for (tenant, _), side in sides.items() if tenant == "b") > 3
