"""Triplets of a mined run: their texts, their folders, their split and tier, and what is left alone."""

import hashlib
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.base.artifacts.stage import partition_of, partition_values
from darklode.pipeline.base.duckdb_views import query, views_sql
from darklode.schemas.mining import MiningSettings
from darklode.schemas.settings import TripletSettings
from darklode.schemas.tables import TABLES
from helpers.mined_tables import DAY, Row
from helpers.mined_tables import give_pairs as give
from helpers.mined_tables import publish_triplets as publish
from helpers.runs import execute


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
        "weight": None,
        "source": "relevance_multi_hop",
        "via_query_id": "v",
        "date": DAY,
        "tier": row["tier"],
        "split": row["split"],
    }


def test_plain_text_leaves_the_title_out(run: Run) -> None:
    docs = [{"doc_id": "a", "title": "Title", "text": "long text"}, {"doc_id": "b", "title": "Other", "text": "other"}]
    give(run, [{"query_id": "q", "positive_id": "a", "negative_id": "b"}], docs, {"q": "x"})
    publish(run, passages=TripletSettings(text_form="text"))
    assert [(row["positive"], row["negatives"]) for row in triplets(run)] == [("long text", ["other"])]


def test_a_copy_of_the_positive_is_no_negative(run: Run) -> None:
    docs = [{"doc_id": name, "title": "Title", "text": "the same"} for name in "ab"]
    give(run, [{"query_id": "q", "positive_id": "a", "negative_id": "b"}], docs, {"q": "x"})
    publish(run)
    assert [(row["positive_id"], row["negative_ids"]) for row in triplets(run)] == [("a", [])]


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
        ("date-2026-03-01", "source-click_one_hop", "split-train")
    }
    assert all(path.resolve().is_relative_to(root.resolve()) for path in files)
    assert len(files) == len(TENANTS)
    assert sorted(row["positive"] for row in triplets(run)) == sorted(TENANTS)
    with duckdb.connect() as connection:
        sql = f"SELECT DISTINCT tenant FROM read_parquet('{root}/**/*.parquet')"
        assert sorted(row[0] for row in connection.sql(sql).fetchall()) == sorted(TENANTS)
    for partitioning in (None, "hive"):
        dataset = pads.dataset(root, partitioning=partitioning)
        assert sorted(dataset.to_table()["tenant"].to_pylist()) == sorted(TENANTS)
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
    monkeypatch.setattr("darklode.pipeline.triplets.mined.TEXT_BLOCK_ROWS", 2)
    sources = ["click_one_hop", "relevance_one_hop"]
    pairs = [{"query_id": f"q{n}", "positive_id": "a", "source": source} for n in range(5) for source in sources]
    sides: dict[str, str | None] = {"q1": "validation", "q3": "validation"}
    give(run, pairs, [{"doc_id": "a", "text": "A"}], {f"q{n}": "x" for n in range(5)}, sides)
    parts = publish(run).outputs["triplets"]
    found = {tuple(part.file.split("/")[4:6]): part.rows for part in parts}
    assert len(parts) == len(found) == 4
    assert {place[1]: rows for place, rows in found.items()} == {"split-train": 3, "split-validation": 2}
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
    left = {"near-duplicate of queries in both splits": 1} | ({"positive of the other split": 2} if apart else {})
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
    assert after["date-2026-03-01"] == before["date-2026-03-01"]
    assert after["date-2026-03-02"] != before["date-2026-03-02"]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8) | st.sampled_from(
    [*TENANTS, "", "a", "A", "b", "_a", ".a", "tenant=a", "tenant-a", "a ", "\n", "ä", "a\u0308"]
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_triplet_lies_in_the_folder_of_its_tenant_source_day_and_split(data: st.DataObject) -> None:
    tenants = data.draw(st.lists(NAMES, min_size=2, max_size=6, unique=True))
    sources = ["relevance_one_hop", "click_one_hop", "click_multi_hop"]
    keys = st.tuples(st.sampled_from(tenants), st.sampled_from(sources), st.integers(1, 3), st.integers(0, 5))
    drawn = data.draw(st.lists(keys, min_size=4, max_size=40, unique=True))
    pairs = [
        {"tenant": tenant, "source": source, "date": date(2026, 3, day), "query_id": f"q{n}", "positive_id": f"d{day}"}
        for tenant, source, day, n in drawn
    ]
    docs = [{"tenant": tenant, "doc_id": f"d{day}", "text": tenant} for tenant in tenants for day in (1, 2, 3)]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("darklode.pipeline.triplets.mined.TEXT_BLOCK_ROWS", data.draw(st.sampled_from([3, 1 << 14])))
        run = Run(f"{folder}/run")
        give(run, pairs, docs, {f"q{n}": "x" for n in range(6)}, {"q1": "validation", "q4": "validation"})
        parts = publish(run).outputs["triplets"]
        found = []
        for part in parts:
            for row in run.tables("triplets").part(part).to_pylist():
                named = partition_values(partition_of(part.file))
                assert named == {name: str(row[name]) for name in ("tenant", "date", "source", "split")}
                name = "\0".join([row["tenant"], row["query_id"], row["positive_id"], row["source"]])
                assert row["triplet_id"] == hashlib.sha256(name.encode()).hexdigest()[:24]
                assert row["positive"] == row["tenant"]
                found.append((row["tenant"], row["source"], row["date"].day, int(row["query_id"][1:])))
        assert sorted(found) == sorted(drawn)
