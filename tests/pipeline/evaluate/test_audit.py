"""The audit against a hand-computed example and plain loops."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.evaluate.audit import AUDIT_STAGE, audit
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.label_tables import QRELS
from darklode.schemas.tables import RANKINGS
from helpers.runs import execute, put, read

Lists = dict[tuple[str, str, str], list[str]]
Labels = dict[tuple[str, str, str], int]
Row = dict[str, Any]


def audited(run: Run, lists: Lists, labels: Labels, depth: int = 2, bootstrap: int = 20, seed: int = 13) -> Manifest:
    ranked = [
        {"tenant": t, "query_id": q, "retriever": r, "rank": rank, "chunk_id": chunk, "score": 0.0}
        for (t, q, r), chunks in lists.items()
        for rank, chunk in enumerate(chunks, start=1)
    ]
    judged = [
        {"tenant": t, "query_id": q, "chunk_id": c, "relevance": label, "source": "judge"}
        for (t, q, c), label in labels.items()
    ]
    put(run, "rankings", pa.Table.from_pylist(ranked, schema=RANKINGS.schema))
    put(run, "qrels", pa.Table.from_pylist(judged, schema=QRELS.schema))
    chosen = EvaluateSettings(n_resamples=bootstrap)
    return execute(run, AUDIT_STAGE, lambda tables, output: audit(tables, output, chosen, depth=depth, seed=seed))


def by_retriever(run: Run) -> dict[tuple[object, object], Row]:
    return {(row["tenant"], row["retriever"]): row for row in read(run, "audit_retrievers")}


HAND: Lists = {
    ("t", "q1", "a"): ["p1", "n1", "p2"],
    ("t", "q1", "b"): ["p1", "p3"],
    ("t", "q2", "a"): ["p1"],
    ("t", "q2", "b"): ["n1", "n2", "p1"],
    ("t", "q3", "a"): ["n1"],
}
# q1 has four positives (p4 is in no list), q2 one, q3 none: it counts nowhere.
HAND_LABELS: Labels = {
    **{("t", "q1", chunk): 1 for chunk in ("p1", "p2", "p3", "p4")},
    ("t", "q1", "n1"): 0,
    ("t", "q2", "p1"): 2,
    ("t", "q2", "n1"): 0,
    ("t", "q3", "n1"): 0,
}


def test_an_example_worked_by_hand(run: Run) -> None:
    audited(run, HAND, HAND_LABELS)
    found = by_retriever(run)
    assert list(found) == [(None, "a"), (None, "b")]
    names = ("recall", "recall_at_depth", "leave_one_out", "unique_positives", "positives", "queries")
    assert [found[None, "a"][name] for name in names] == [(2 / 4 + 1) / 2, (1 / 4 + 1) / 2, (2 / 4 + 0) / 2, 1, 5, 2]
    assert [found[None, "b"][name] for name in names] == [(2 / 4 + 1) / 2, (2 / 4 + 0) / 2, (1 / 4 + 1) / 2, 1, 5, 2]


def test_overlap_worked_by_hand(run: Run) -> None:
    audited(run, HAND, HAND_LABELS)
    assert [tuple(row.values()) for row in read(run, "audit_overlap")] == [
        ("a", "a", 2, 2, 1.0),
        ("a", "b", 1, 2, 1 / 3),
        ("b", "a", 1, 2, 1 / 3),
        ("b", "b", 2, 2, 1.0),
    ]


def test_retrievers_that_found_nothing_have_no_jaccard(run: Run) -> None:
    audited(run, {("t", "q", "a"): ["n"], ("t", "q", "b"): ["n"]}, {("t", "q", "p"): 1})
    assert {row["jaccard"] for row in read(run, "audit_overlap")} == {None}
    assert [row["recall"] for row in read(run, "audit_retrievers")] == [0.0, 0.0]


def test_a_retriever_alone_is_missed_wholly(run: Run) -> None:
    audited(run, {("t", "q", "a"): ["p"]}, {("t", "q", "p"): 1})
    row = by_retriever(run)[None, "a"]
    assert (row["recall"], row["leave_one_out"], row["unique_positives"]) == (1.0, 0.0, 1)


@pytest.mark.parametrize("labels", [{}, {("t", "q1", "n1"): 0}])
def test_without_positives_there_is_nothing_to_measure(run: Run, labels: Labels) -> None:
    manifest = audited(run, HAND, labels)
    assert (read(run, "audit_retrievers"), read(run, "audit_overlap")) == ([], [])
    assert "was never judged" in manifest.facts["caveat"]


def test_without_lists_there_is_nobody_to_measure(run: Run) -> None:
    audited(run, {}, HAND_LABELS)
    assert (read(run, "audit_retrievers"), read(run, "audit_overlap")) == ([], [])


def world(number: int) -> tuple[Lists, Labels]:
    chance = random.Random(number)
    lists: Lists = {}
    labels: Labels = {}
    for tenant in ("a", "b", "c")[: chance.randint(1, 3)]:
        for query in (f"q{n}" for n in range(chance.randint(1, 5))):
            chunks = [f"c{n}" for n in range(chance.randint(1, 10))]
            for retriever in ("x", "y", "z"):
                lists[tenant, query, retriever] = chance.sample(chunks, chance.randint(0, len(chunks)))
            for chunk in chunks:
                if chance.random() < 0.7:
                    labels[tenant, query, chunk] = chance.choice([0, 0, 1, 2])
    lists["a", "q0", "x"] = lists["a", "q0", "x"] or ["c0"]
    return lists, labels


def reference(lists: Lists, labels: Labels, depth: int) -> dict[tuple[str | None, str], dict[str, float]]:
    positives = {key for key, label in labels.items() if label > 0}
    tenants = sorted({key[0] for key in positives})
    retrievers = sorted({key[2] for key, chunks in lists.items() if chunks})

    def found(retriever: str, positive: tuple[str, str, str], within: int) -> bool:
        return positive[2] in lists.get((*positive[:2], retriever), [])[:within]

    rows: dict[tuple[str | None, str], dict[str, float]] = {}
    for scope in [None, *(tenants if len(tenants) > 1 else [])]:
        mine = {key for key in positives if scope in (None, key[0])}
        queries = sorted({key[:2] for key in mine})
        for retriever in retrievers if mine else []:
            others = [name for name in retrievers if name != retriever]
            sums = dict.fromkeys(("recall", "recall_at_depth", "leave_one_out"), 0.0)
            for query in queries:
                own = [key for key in mine if key[:2] == query]
                sums["recall"] += sum(found(retriever, key, 420) for key in own) / len(own)
                sums["recall_at_depth"] += sum(found(retriever, key, depth) for key in own) / len(own)
                sums["leave_one_out"] += sum(any(found(o, key, depth) for o in others) for key in own) / len(own)
            unique = sum(found(retriever, k, depth) and not any(found(o, k, depth) for o in others) for k in mine)
            rows[scope, retriever] = {name: total / len(queries) for name, total in sums.items()}
            rows[scope, retriever] |= {"unique_positives": unique, "positives": len(mine), "queries": len(queries)}
    return rows


@examples(max_examples=12, deadline=None)
@given(number=st.integers(0, 2**32), depth=st.integers(1, 6))
def test_the_audit_is_that_of_plain_loops(number: int, depth: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = Run(str(tmp_path_factory.mktemp("audit")))
    lists, labels = world(number)
    audited(run, lists, labels, depth)
    wanted, rows = reference(lists, labels, depth), by_retriever(run)
    assert list(rows) == list(wanted)
    for key, row in rows.items():
        assert {name: row[name] for name in wanted[key]} == pytest.approx(wanted[key])
        for name in ("recall", "leave_one_out"):
            assert 0 <= row[f"{name}_low"] <= row[f"{name}_high"] <= 1 + 1e-12
    positives = {key for key, label in labels.items() if label > 0}
    near = {
        name: {(t, q, c) for t, q, c in positives if c in lists.get((t, q, name), [])[:depth]}
        for name in {retriever for _, retriever in wanted}
    }
    for row in read(run, "audit_overlap"):
        one, other = near[str(row["retriever"])], near[str(row["other"])]
        assert (row["shared"], row["found"]) == (len(one & other), len(one))
        assert row["jaccard"] == (pytest.approx(len(one & other) / len(one | other)) if one | other else None)


def test_the_audit_is_reproducible_and_seeded(run: Run) -> None:
    lists, labels = world(38)
    assert len({key[:2] for key, label in labels.items() if label}) > 8
    first = audited(run, lists, labels).outputs
    assert audited(run, lists, labels).outputs == first
    assert audited(run, lists, labels, seed=14).outputs != first


def test_tenants_have_rows_of_their_own_where_there_are_several(run: Run) -> None:
    lists = HAND | {("u", *key[1:]): chunks for key, chunks in HAND.items() if key[2] == "a"}
    labels = HAND_LABELS | {("u", "q1", "p1"): 1}
    audited(run, lists, labels)
    found = by_retriever(run)
    assert list(found) == [(tenant, name) for tenant in (None, "t", "u") for name in "ab"]
    assert [found[tenant, "a"]["positives"] for tenant in (None, "t", "u")] == [6, 5, 1]
    assert [found[tenant, "b"]["recall"] for tenant in (None, "t", "u")] == [0.5, 0.75, 0.0]
