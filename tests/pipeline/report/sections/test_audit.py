"""The audit on the page: scopes, the heat map, and what only one retriever found."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.drawing import Chart, Multiples
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.report_runs import RETRIEVERS, figure, key_of, parsed, rendered, rows_of, shown, text_of
from helpers.runs import put, read


def test_what_only_one_retriever_found(chance_run: Run) -> None:
    positive = {(*key_of(row), row["chunk_id"]) for row in read(chance_run, "qrels") if row["relevance"]}
    pool = [(row["retrievers"], (*key_of(row), row["chunk_id"]) in positive) for row in read(chance_run, "pool")]
    rows = {row["retriever"]: row for row in shown(chance_run)["only-one-found"].table.to_pylist()}
    for name in RETRIEVERS:
        mine_ = [(found, good) for found, good in pool if name in found]
        assert rows[name] == {
            "retriever": name,
            "unique_positives": sum(good for found, good in mine_ if len(found) == 1),
            "positives": sum(good for _, good in mine_),
            "unique_candidates": sum(len(found) == 1 for found, _ in mine_),
            "candidates": len(mine_),
        }


def test_two_tenants_stand_apart(run: Run) -> None:
    root = parsed(rendered(finished_run(run.store.url)))
    assert [row["tenant"] for row in rows_of(root, "sizes")] == ["acme", "b/i rch"]
    groups = [text_of(one) for one in figure(root, "audit-retrievers").iter("h5")]
    assert groups == ["all tenants", "acme", "b/i rch"] * 2


def test_the_heat_map_holds_the_overlaps(run: Run) -> None:
    pairs = {("a", "b"): 0.25, ("a", "c"): 0.99, ("b", "c"): 1.0}
    rows = [
        {
            "retriever": one,
            "other": two,
            "shared": 1,
            "found": 1,
            "jaccard": pairs.get((min(one, two), max(one, two)), 1),
        }
        for one in "cab"
        for two in "bca"
    ]
    put(run, "audit_overlap", pa.Table.from_pylist(rows, TABLES["audit_overlap"].schema))
    (matrix,) = [one for one in figure(parsed(rendered(run)), "audit-overlap").iter("table") if one.get("class")]
    drawn = [[(text_of(cell), cell.get("class")) for cell in row.iter("td")] for row in matrix.iter("tr")][1:]
    assert drawn == [
        [("1.00", "none"), ("0.25", "h2"), ("0.99", "h9")],
        [("0.25", "h2"), ("1.00", "none"), ("1.00", "h9")],
        [("0.99", "h9"), ("1.00", "h9"), ("1.00", "none")],
    ]


def test_many_tenants_have_a_small_chart_each_in_the_order_of_all(run: Run) -> None:
    names = {None: ("x", "y"), **{f"t{place:02}": ("y", "x") for place in range(15)}}
    counts = {"unique_positives": 1, "positives": 9, "recall_at_depth": 0.9}
    rows = [
        {"tenant": tenant, "retriever": name, "queries": 9 if tenant is None else 40 - int(tenant[1:])}
        | counts
        | {f"{what}{end}": 0.95 - place / 50 for what in ("recall", "leave_one_out") for end in ("", "_low", "_high")}
        for tenant, both in names.items()
        for place, name in enumerate(both)
    ]
    put(run, "audit_retrievers", pa.Table.from_pylist(rows[::-1], TABLES["audit_retrievers"].schema))
    drawn = shown(run)["audit-retrievers"].drawings
    assert [one.kind for one in drawn] == ["chart", "chart", "multiples", "multiples"]
    small = drawn[2]
    assert isinstance(small, Multiples)
    assert [one.title for one in small.drawings] == [f"t{place:02}" for place in range(12)], "the largest"
    assert {tuple(row.label for row in one.rows) for one in small.drawings if isinstance(one, Chart)} == {("x", "y")}
    assert small.note == "The 12 tenants with the most queries."


def test_recall_at_ten_tells_lists_apart_that_hold_everything(run: Run) -> None:
    (first, *_) = shown(finished_run(run.store.url))["audit-retrievers"].drawings
    assert isinstance(first, Chart)
    assert first.title == "Recall@10 of each retriever"
    assert {row.label for row in first.rows} == {"bm25", "../dense one"}
