import random
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report.diff import attach_both, changed_verdicts, counts, examples, label_reasons
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.runs import put

Rows = list[dict[str, object]]
JUDGE = {"judge_id": "j"}


def tables(folder: Path, **given: Rows) -> Tables:
    """A run that holds just these tables; what a row leaves out is null, or a text of no interest."""
    run = Run(str(folder))
    for name, rows in given.items():
        schema = TABLES[name].schema
        columns = {
            field.name: [row.get(field.name, None if field.nullable else _filler(str(field.type))) for row in rows]
            for field in schema
        }
        put(run, name, TABLES[name].rows(columns))
    return all_tables(run)


def _filler(kind: str) -> object:
    return {"string": "x", "bool": False}.get(kind, [] if kind.startswith("list") else 0)


def pair(query: str, chunk: str, tenant: str = "a", **more: object) -> dict[str, object]:
    return {"tenant": tenant, "query_id": query, "chunk_id": chunk} | more


def whole(pairs: Rows) -> dict[str, Rows]:
    """Queries, chunks and a pool in which these pairs can lie."""
    queries = {(row["tenant"], row["query_id"]): {"text": f"query {row['query_id']}"} for row in pairs}
    chunks = {(row["tenant"], row["chunk_id"]): {"text": f"chunk {row['chunk_id']}"} for row in pairs}
    return {
        "queries": [{"tenant": tenant, "query_id": name} | more for (tenant, name), more in queries.items()],
        "chunks": [{"tenant": tenant, "chunk_id": name} | more for (tenant, name), more in chunks.items()],
        "pool": [pair(str(row["query_id"]), str(row["chunk_id"]), str(row["tenant"])) for row in pairs],
        "qrels": [row for row in pairs if row["relevance"] is not None],
        "verdicts": [row | JUDGE for row in pairs],
    }


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_those_of_sets(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    runs = [
        {
            (tenant, f"q{query}", f"c{chunk}"): drawn.choice([0, 0, 1, 2])
            for tenant in "ab"
            for query in range(4)
            for chunk in range(4)
            if drawn.random() < 0.7
        }
        for _ in range(2)
    ]
    old, new = runs
    given = [[pair(q, c, t, relevance=said) for (t, q, c), said in run.items()] for run in runs]
    with attach_both(*(tables(tmp_path / str(n), qrels=rows) for n, rows in enumerate(given))) as compared:
        found = counts(compared)
    assert found.to_pylist() == [
        {
            "table": "labels",
            "before": len(old),
            "after": len(new),
            "removed": len(old.keys() - new.keys()),
            "added": len(new.keys() - old.keys()),
            "changed": sum((old[key] > 0) != (new[key] > 0) for key in old.keys() & new.keys()),
        }
    ]


def test_a_run_does_not_differ_from_itself(tmp_path: Path) -> None:
    one = all_tables(finished_run(str(tmp_path / "run")))
    with attach_both(one, one) as compared:
        found = counts(compared).to_pylist()
        assert label_reasons(compared).num_rows == changed_verdicts(compared, 9).num_rows == 0
        assert not any(rows.num_rows for _, rows in examples(compared, 9))
    assert [row["table"] for row in found] == ["documents", "chunks", "queries", "pool", "labels", "triplets"]
    assert all(row["before"] == row["after"] > 0 for row in found)
    assert not any(row["removed"] + row["added"] + row["changed"] for row in found)


def test_runs_without_tables_do_not_differ(tmp_path: Path) -> None:
    with attach_both(tables(tmp_path / "one"), tables(tmp_path / "two")) as compared:
        assert counts(compared).num_rows == 0


def test_tenants_are_not_taken_for_one_another(tmp_path: Path) -> None:
    one, two = ([pair("q", "c", tenant, relevance=1)] for tenant in "ab")
    with attach_both(tables(tmp_path / "one", qrels=one), tables(tmp_path / "two", qrels=two)) as compared:
        found = counts(compared).to_pylist()[0]
    assert (found["removed"], found["added"], found["changed"]) == (1, 1, 0)


def test_a_label_says_why_only_one_run_has_it(tmp_path: Path) -> None:
    stays = pair("q", "c", relevance=1)
    before = whole([stays, pair("gone", "c", relevance=0), pair("q", "old", relevance=1), pair("q", "d", relevance=1)])
    after = whole([stays, pair("new", "c", relevance=1), pair("q", "d", relevance=None)])
    before["chunks"] += [{"tenant": "a", "chunk_id": "out", "text": "both know it"}]
    before["queries"] += [{"tenant": "a", "query_id": "new", "text": "known, and never pooled"}]
    with attach_both(tables(tmp_path / "old", **before), tables(tmp_path / "new", **after)) as compared:
        found = label_reasons(compared).to_pylist()
    assert {(row["labels"], row["reason"]): (row["relevant"], row["not_relevant"]) for row in found} == {
        ("added", "pair added to the pool"): (1, 0),
        ("removed", "query removed"): (0, 1),
        ("removed", "chunk removed"): (1, 0),
        ("removed", "pair not judged, or its verdict is null"): (1, 0),
    }


def test_flips_come_with_texts_and_the_largest_shift_first(tmp_path: Path) -> None:
    def run(name: str, *said: tuple[int, float | None]) -> Tables:
        rows = [pair("q", f"c{n}", relevance=label, probability=p) for n, (label, p) in enumerate(said)]
        return tables(tmp_path / name, **whole(rows))

    old = run("old", (0, 0.4), (0, 0.1), (1, 0.9), (1, None), (1, 0.8), (0, 0.3))
    new = run("new", (1, 0.6), (2, 0.75), (0, 0.2), (0, 0.1), (3, 0.9), (0, 0.1))
    with attach_both(old, new) as compared:
        found = changed_verdicts(compared, 5).to_pylist()
        fewest = changed_verdicts(compared, 1).to_pylist()
    assert [(row["relevant"], row["chunk"]) for row in found] == [
        (True, "chunk c1"),
        (True, "chunk c0"),
        (False, "chunk c2"),
        (False, "chunk c3"),
    ]
    assert (found[0]["query"], found[0]["before"], found[0]["after"]) == ("query q", pytest.approx(0.1), 0.75)
    assert found[3]["before"] is None
    assert [row["chunk_id"] for row in fewest] == ["c1", "c2"]


def test_examples_show_the_text_before_and_after(tmp_path: Path) -> None:
    def run(name: str, *texts: str) -> Tables:
        rows: Rows = [
            {"tenant": "a", "query_id": f"q{n}", "text": text, "split": "train"} for n, text in enumerate(texts)
        ]
        return tables(tmp_path / name, queries=rows)

    with attach_both(run("old", "one", "two", ""), run("new", "one", "too")) as compared:
        shown = dict(examples(compared, 9))["queries"].to_pylist()
    assert [(row["change"], row["before"], row["after"]) for row in shown] == [
        ("changed", "two [train]", "too [train]"),
        ("removed", " [train]", None),
    ]
    many = [str(number) for number in range(50)]
    with attach_both(run("none"), run("many", *many)) as compared:
        assert dict(examples(compared, 4))["queries"].num_rows == 4
