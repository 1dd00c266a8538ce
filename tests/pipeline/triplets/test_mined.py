"""Triplets of a mined run: their texts, their folders, their split and tier, and what is left alone."""

import hashlib
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Manifest, Run, Stage
from darklode.pipeline.base.views import query, views_sql
from darklode.pipeline.triplets.mined import MINED_TRIPLETS, mined_triplets
from darklode.schemas.mining import MiningSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put

DAY = date(2026, 3, 1)
Row = dict[str, Any]


def give(
    run: Run, pairs: list[Row], docs: list[Row], queries: dict[str, str], sides: dict[str, str | None] | None = None
) -> None:
    base = {"tenant": "default", "source": "click_one_hop", "date": DAY}
    rows = pa.Table.from_pylist([base | row for row in pairs], TABLES["mined_pairs"].schema)

    def write(_tables: object, output: Any) -> None:
        for day in sorted(set(rows["date"].to_pylist())):
            output.write("mined_pairs", rows.filter(pc.equal(rows["date"], day)))

    execute(run, Stage("given_mined_pairs", 1, (), TABLES["mined_pairs"].files), write)
    filled = [{"tenant": "default", "source": "t", "content_hash": row["text"]} | row for row in docs]
    put(run, "documents", pa.Table.from_pylist(filled, TABLES["documents"].schema))
    tenants = sorted({(base | row)["tenant"] for row in pairs})
    asked = [
        {"tenant": tenant, "query_id": name, "text": text, "normal_form": text, "date": DAY}
        for tenant in tenants
        for name, text in queries.items()
    ]
    put(run, "log_queries", pa.Table.from_pylist(asked, TABLES["log_queries"].schema))
    sided = [
        {key: row[key] for key in ("tenant", "query_id", "date")}
        | {"cluster_id": row["query_id"], "split": (sides or {}).get(row["query_id"], "train")}
        for row in asked
    ]
    put(run, "query_clusters", pa.Table.from_pylist(sided, TABLES["query_clusters"].schema))


def publish(run: Run, settings: MiningSettings | None = None, *, apart: bool = False) -> Manifest:
    chosen = settings or MiningSettings()
    return execute(
        run,
        MINED_TRIPLETS,
        lambda tables, output: mined_triplets(tables, output, chosen, apart=apart, seed=13),
    )


def triplets(run: Run) -> list[Row]:
    return run.tables("triplets").read("triplets").to_pylist()


def test_a_triplet_has_the_texts_of_its_pair(run: Run) -> None:
    pair = {"query_id": "q", "positive_id": "a", "negative_id": "b", "positive_score": 0.5, "negative_score": 0.25}
    docs = [{"doc_id": "a", "title": "Title", "text": "long text"}, {"doc_id": "b", "title": None, "text": "other"}]
    give(run, [pair | {"via_query_id": "v", "source": "relevance_multi_hop"}], docs, {"q": "reset password"})
    publish(run, MiningSettings(text_characters=4))
    (row,) = triplets(run)
    name = "\0".join(["default", "q", "a", "relevance_multi_hop"])
    assert row == {
        "triplet_id": hashlib.sha256(name.encode()).hexdigest()[:24],
        "tenant": "default",
        "query_id": "q",
        "query": "reset password",
        "positive_id": "a",
        "positive": "Title\nlong",
        "negative_ids": ["b"],
        "negatives": ["othe"],
        "positive_score": 0.5,
        "negative_scores": [0.25],
        "source": "relevance_multi_hop",
        "via_query_id": "v",
        "date": DAY,
        "tier": row["tier"],
        "split": row["split"],
    }


def test_a_pair_without_a_text_is_counted_and_a_negative_without_one_left_out(run: Run) -> None:
    pairs = [
        {"query_id": "q", "positive_id": "gone", "negative_id": "a"},
        {"query_id": "q", "positive_id": "a", "negative_id": "gone"},
        {"query_id": "q", "positive_id": "b", "negative_id": None},
    ]
    give(run, pairs, [{"doc_id": "a", "text": "A"}, {"doc_id": "b", "text": "B"}], {"q": "x"})
    manifest = publish(run)
    assert [(row["positive"], row["negative_ids"], row["negatives"]) for row in triplets(run)] == [
        ("A", [], []),
        ("B", [], []),
    ]
    assert manifest.funnel[0].dropped == {"no document of that id": 1}


TENANTS = ["a/b", "..", "x=y&z", "späti 'n' \"co\"", "[*]?", "%41"]


def test_folders_name_tenant_day_and_source_whatever_the_tenant_is_called(run: Run, tmp_path: Path) -> None:
    pairs = [{"tenant": tenant, "query_id": "q", "positive_id": "d"} for tenant in TENANTS]
    docs = [{"tenant": tenant, "doc_id": "d", "text": tenant} for tenant in TENANTS]
    give(run, pairs, docs, {"q": "x"})
    publish(run)
    assert run.store.local is not None
    root = run.store.local / "tables" / "triplets"
    files = list(root.rglob("*.parquet"))
    assert {path.relative_to(root).parts[1:4] for path in files} == {
        ("date=2026-03-01", "source=click_one_hop", "split=train")
    }
    assert all(path.resolve().is_relative_to(root.resolve()) for path in files)
    assert len(files) == len(TENANTS)
    assert sorted(row["positive"] for row in triplets(run)) == sorted(TENANTS)
    with duckdb.connect() as connection:
        sql = f"SELECT DISTINCT tenant FROM read_parquet('{root}/**/*.parquet', hive_partitioning = true)"
        assert sorted(row[0] for row in connection.sql(sql).fetchall()) == sorted(TENANTS)
    assert sorted(pads.dataset(root, partitioning="hive").to_table()["tenant"].to_pylist()) == sorted(TENANTS)
    assert sorted(pq.read_table(root)["tenant"].to_pylist()) == sorted(TENANTS)
    assert sorted(query(run, "SELECT tenant FROM triplets")["tenant"].to_pylist()) == sorted(TENANTS)
    with duckdb.connect() as connection:
        connection.execute(views_sql(run))
        assert sorted(row[0] for row in connection.sql("SELECT tenant FROM triplets").fetchall()) == sorted(TENANTS)


def many(run: Run, n: int = 4000) -> list[Row]:
    pairs = [{"query_id": f"q{number}", "positive_id": "d"} for number in range(n)]
    give(run, pairs, [{"doc_id": "d", "text": "D"}], {f"q{number}": f"word{number} other" for number in range(n)})
    publish(run)
    return triplets(run)


def test_a_folder_has_one_file_however_its_rows_come(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darklode.pipeline.triplets.mined.ROWS", 2)
    sources = ["click_one_hop", "relevance_one_hop"]
    pairs = [{"query_id": f"q{n}", "positive_id": "a", "source": source} for n in range(5) for source in sources]
    sides: dict[str, str | None] = {"q1": "validation", "q3": "validation"}
    give(run, pairs, [{"doc_id": "a", "text": "A"}], {f"q{n}": "x" for n in range(5)}, sides)
    parts = publish(run).outputs["triplets"]
    found = {tuple(part.file.split("/")[4:6]): part.rows for part in parts}
    assert len(parts) == len(found) == 4
    assert {place[1]: rows for place, rows in found.items()} == {"split=train": 3, "split=validation": 2}
    assert {part.day for part in parts} == {"2026-03-01"}


def test_tiers_have_their_shares(run: Run) -> None:
    rows = many(run)
    assert shares(rows) == pytest.approx([0.0076, 0.167 - 0.0076, 0.833], abs=0.02)


def shares(rows: list[Row]) -> list[float]:
    return [sum(row["tier"] == tier for row in rows) / len(rows) for tier in ("small", "median", "large")]


def test_tiers_are_shares_of_the_pairs_where_one_query_has_most_of_them(run: Run) -> None:
    docs = [{"doc_id": f"d{number}", "text": "D"} for number in range(4000)]
    rare = [{"query_id": f"q{number}", "positive_id": "d1"} for number in range(40)]
    pairs = [{"query_id": "head", "positive_id": doc["doc_id"]} for doc in docs] + rare
    twice = [{"query_id": "head", "positive_id": doc["doc_id"], "source": "click_multi_hop"} for doc in docs]
    give(run, pairs + twice, docs, {"head": "head", **{f"q{number}": f"rare{number}" for number in range(40)}})
    publish(run)
    rows = triplets(run)
    assert shares(rows) == pytest.approx([0.0076, 0.167 - 0.0076, 0.833], abs=0.02)
    tiers = {(row["positive_id"], row["source"]): row["tier"] for row in rows if row["query_id"] == "head"}
    assert all(tiers[doc, "click_multi_hop"] == tier for (doc, _), tier in tiers.items())


SIDES: dict[str, str | None] = {"t1": "train", "t2": "train", "v1": "validation", "v2": "validation", "torn": None}
SHARED = [
    {"query_id": "v1", "positive_id": "a"},
    {"query_id": "t1", "positive_id": "a", "date": date(2026, 3, 2)},
    {"query_id": "t1", "positive_id": "b"},
    {"query_id": "v2", "positive_id": "b", "date": date(2026, 3, 2)},
    {"query_id": "t2", "positive_id": "b", "date": date(2026, 3, 3)},
    {"query_id": "torn", "positive_id": "c"},
    {"query_id": "t2", "positive_id": "c", "date": date(2026, 3, 2)},
]


@pytest.mark.parametrize("apart", [False, True])
def test_a_query_on_neither_side_makes_no_triplet_and_a_positive_may_have_a_side(run: Run, apart: bool) -> None:
    give(run, SHARED, [{"doc_id": name, "text": name} for name in "abc"], dict.fromkeys(SIDES, "x"), SIDES)
    manifest = publish(run, apart=apart)
    found = {(row["query_id"], row["positive_id"], row["split"]) for row in triplets(run)}
    with_first = {("v1", "a", "validation"), ("t1", "b", "train"), ("t2", "b", "train"), ("t2", "c", "train")}
    assert found == with_first | (set() if apart else {("t1", "a", "train"), ("v2", "b", "validation")})
    left = {"near to queries of both sides": 1} | ({"positive of the other side": 2} if apart else {})
    assert manifest.funnel[0].dropped == left


def test_a_query_that_changes_sides_takes_its_triplets_along(run: Run) -> None:
    give(run, SHARED, [{"doc_id": name, "text": name} for name in "abc"], dict.fromkeys(SIDES, "x"), SIDES)
    publish(run)
    moved = SIDES | {"t1": "validation"}
    give(run, SHARED, [{"doc_id": name, "text": name} for name in "abc"], dict.fromkeys(SIDES, "x"), moved)
    publish(run)
    assert {row["split"] for row in triplets(run) if row["query_id"] == "t1"} == {"validation"}


def test_a_day_is_written_again_only_where_its_pairs_or_documents_changed(run: Run) -> None:
    later = date(2026, 3, 2)
    pairs = [{"query_id": "q", "positive_id": "a"}, {"query_id": "q", "positive_id": "b", "date": later}]
    docs = [{"doc_id": name, "text": name.upper()} for name in "abc"]

    def days(given: list[Row], texts: list[Row]) -> dict[str, str]:
        base = {"tenant": "default", "source": "click_one_hop", "date": DAY}
        rows = pa.Table.from_pylist([base | row for row in given], TABLES["mined_pairs"].schema)

        def write(_tables: object, output: Any) -> None:
            for number in range(rows.num_rows):
                output.write("mined_pairs", rows.slice(number, 1))

        give(run, given, texts, {"q": "x"})
        execute(run, Stage("given_mined_pairs", 1, (), TABLES["mined_pairs"].files), write)
        manifest = publish(run)
        return {part.file.split("/")[3]: part.sha256 for part in manifest.outputs["triplets"]}

    before = days(pairs, docs)
    other = [*docs[:2], {"doc_id": "c", "text": "nobody mentions it"}]
    assert days(pairs, other) == before
    changed = [docs[0], {"doc_id": "b", "text": "new"}, docs[2]]
    after = days(pairs, changed)
    assert after["date=2026-03-01"] == before["date=2026-03-01"]
    assert after["date=2026-03-02"] != before["date=2026-03-02"]
