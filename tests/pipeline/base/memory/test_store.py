"""The keyed store, whatever its kind: keys of one hash, rows without failures, owners, merging, and an S3 root."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.memory import store as keyed
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import KeyedStore
from helpers.hash_encoder import content_hash

PLANS = RowKind(
    "plans",
    "planner",
    ("query_hash",),
    pa.schema([pa.field("terms", pa.list_(pa.string())), pa.field("error", pa.string())]),
    answer="terms",
)
SPENT = RowKind("spending", "limit", ("call_hash",), pa.schema([pa.field("cost", pa.float64(), nullable=False)]))


def hashes(*names: str) -> list[str]:
    return [content_hash(name) for name in names]


def plans(**terms: list[str] | None) -> pa.Table:
    errors = [None if words else "no terms in the reply" for words in terms.values()]
    columns = {"query_hash": hashes(*terms), "terms": list(terms.values()), "error": errors}
    return pa.table(columns, schema=pa.schema([pa.field("query_hash", pa.string()), *PLANS.values]))


def spent(**costs: float) -> pa.Table:
    return pa.table({"call_hash": hashes(*costs), "cost": list(costs.values())})


def terms(store: KeyedStore, *names: str) -> list[list[str] | None]:
    found = store.open("p").find(pa.table({"query_hash": hashes(*names)}))
    rows = dict(zip(found.rows.tolist(), found.values["terms"].to_pylist(), strict=True))
    return [rows.get(row) for row in range(len(names))]


@pytest.mark.parametrize("place", ["folder", pytest.param("bucket", marks=pytest.mark.server)])
def test_rows_are_found_by_one_hash_and_merged(
    place: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path) if place == "folder" else request.getfixturevalue("bucket")
    store = KeyedStore(root, PLANS)
    store.append("p", plans(a=["x"], b=None))
    store.append("p", plans(b=["y"], a=["late"], c=None))
    store.append("q", plans(d=["z"]))
    for _ in range(2):
        assert terms(store, "c", "b", "d", "a", "b") == [None, ["y"], None, ["x"], ["y"]]
        assert len(store.open("p")) == 3
        monkeypatch.setattr(keyed, "MERGE_PARTS", 2)
        store.merge_small_parts("p")
        store.merge_small_parts("q")
    assert store.usage().select(["owner_id", "rows", "parts", "damaged"]).to_pylist() == [
        {"owner_id": "p", "rows": 3, "parts": 1, "damaged": []},
        {"owner_id": "q", "rows": 1, "parts": 1, "damaged": []},
    ]
    assert store.prune(["p"]) > 0
    assert store.owners() == ["q"]
    assert terms(store, "a") == [None]


def test_rows_that_cannot_fail_are_added_up(tmp_path: Path) -> None:
    store = KeyedStore(str(tmp_path), SPENT)
    assert store.open("limit").rows(["cost"]).num_rows == 0
    store.append("limit", spent(one=1.0, two=0.5))
    entries = store.open("limit")
    KeyedStore(str(tmp_path), SPENT).append("limit", spent(three=0.25, one=9.0))
    assert sum(entries.rows(["cost"])["cost"].to_pylist()) == 1.5
    entries.refresh()
    assert sum(entries.rows(["cost"])["cost"].to_pylist()) == 1.75, "the first row under a key stands"


def test_kinds_lie_apart_and_empty_rows_write_nothing(tmp_path: Path) -> None:
    plan, spend = KeyedStore(str(tmp_path), PLANS), KeyedStore(str(tmp_path), SPENT)
    plan.append("p", plans(a=["x"]))
    spend.append("p", spent().cast(pa.schema([("call_hash", pa.string()), ("cost", pa.float64())])))
    assert spend.owners() == []
    assert (tmp_path / "plans").is_dir()
    assert not (tmp_path / "spending").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (plans(a=["x"]).set_column(0, "query_hash", pa.array(["short"])), "not a content hash"),
        (plans(a=None).set_column(2, "error", pa.array([None], pa.string())), "needs a text in `error`"),
        (plans(a=["x"]).set_column(1, "terms", pa.array(["x"])), "cast"),
        (plans(a=["x"]).drop(["error"]), "error"),
    ],
    ids=["no hash", "silent failure", "another type", "a column less"],
)
def test_what_is_not_of_the_kind_is_refused(tmp_path: Path, rows: pa.Table, message: str) -> None:
    with pytest.raises((ValueError, KeyError, pa.ArrowException), match=message):
        KeyedStore(str(tmp_path), PLANS).append("p", rows)
    assert not list(tmp_path.rglob("*.parquet"))


def test_an_older_version_merges_no_part_with_columns_that_it_does_not_know(tmp_path: Path) -> None:
    older = RowKind("facts", "teller", ("key",), pa.schema([pa.field("value", pa.int64())]))
    newer = RowKind(
        "facts", "teller", ("key",), pa.schema([pa.field("value", pa.int64()), pa.field("grade", pa.int64())])
    )
    keys = [f"{number:032x}" for number in range(6)]
    old, new = KeyedStore(str(tmp_path), older), KeyedStore(str(tmp_path), newer)
    for number in (0, 1):
        old.append("me", pa.table({"key": [keys[number]], "value": [number]}))
    for number in (2, 3):
        new.append("me", pa.table({"key": [keys[number]], "value": [number], "grade": [number * 10]}))
    assert old.merge("me") == 1, "its own two parts"
    found = new.open("me").find(pa.table({"key": keys}))
    assert found.values["value"].to_pylist() == [0, 1, 2, 3]
    assert found.values["grade"].to_pylist() == [None, None, 20, 30]
    assert new.merge("me") == 2, "the newer version merges all"
    assert new.open("me").find(pa.table({"key": keys})).values["grade"].to_pylist() == [None, None, 20, 30]
