"""Triplets as one row per query, block by block."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export import grouped_triplets as module
from darklode.pipeline.export.grouped_triplets import group_triplets, n_without_negative
from helpers.triplet_rows import Given, triplet_rows

Ids = list[str]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def blocks(
    connection: duckdb.DuckDBPyConnection, *tables: pa.Table
) -> list[tuple[str, int, dict[tuple[str, str], tuple[Ids, Ids]]]]:
    """Of each block: its split, its bare queries, and by tenant and query the ids of positives and negatives."""
    connection.register("triplets", pa.concat_tables(tables))
    found = []
    for split in group_triplets(connection):
        rows = connection.sql("FROM grouped_queries ORDER BY tenant, query_id").to_arrow_table().to_pylist()
        ids = {
            (row["tenant"], row["query_id"]): tuple(
                [one["id"] for one in row[side]] for side in ("positives", "negatives")
            )
            for row in rows
        }
        found.append((split, n_without_negative(connection), ids))
    return found  # type: ignore[return-value]


def test_a_querys_positives_come_together_and_are_none_of_its_negatives(connection: duckdb.DuckDBPyConnection) -> None:
    given: list[Given] = [("q", "a", ["n1", "b", "n2"]), ("q", "b", ["n3", "a'"])]
    ((split, without, rows),) = blocks(connection, triplet_rows(given))
    assert (split, without) == ("train", 0)
    assert rows == {("t", "q"): (["a", "b"], ["n1", "n3", "n2"])}, "a' has the text of the positive a"


def test_a_negative_of_several_triplets_counts_once_with_its_best_score(connection: duckdb.DuckDBPyConnection) -> None:
    blocks(connection, triplet_rows([("q", "a", ["x", "y"]), ("q", "b", ["y", "x"])]))
    ((negatives,),) = connection.sql("SELECT negatives FROM grouped_queries").fetchall()
    assert [(one["id"], pytest.approx(one["score"])) for one in negatives] == [("x", 0.9), ("y", 0.9)]


def test_tenants_with_the_same_ids_stay_apart(connection: duckdb.DuckDBPyConnection) -> None:
    tables = [triplet_rows([("q", "a", [negative])], tenant=tenant) for tenant, negative in (("t", "x"), ("u", "a2"))]
    ((_, _, rows),) = blocks(connection, *tables)
    assert rows == {("t", "q"): (["a"], ["x"]), ("u", "q"): (["a"], ["a2"])}


@pytest.mark.parametrize("size", [1, 60, 1 << 27])
def test_blocks_hold_whole_queries_of_one_split(
    connection: duckdb.DuckDBPyConnection, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_PER_BLOCK", size)
    given: list[Given] = [(f"q{n % 4}", f"p{n}", [f"n{n}"]) for n in range(12)]
    made = blocks(connection, triplet_rows(given), triplet_rows(given, split="validation"))
    assert sorted({split for split, _, _ in made}) == ["train", "validation"]
    assert [split for split, _, _ in made] == sorted(split for split, _, _ in made)
    for wanted in ("train", "validation"):
        queries = [key for split, _, rows in made if split == wanted for key in rows]
        assert queries == [("t", f"q{n}") for n in range(4)]
    if size == 1:
        assert len(made) == 8


def test_queries_without_negatives_are_counted(connection: duckdb.DuckDBPyConnection) -> None:
    ((_, without, _),) = blocks(connection, triplet_rows([("q", "a", ["n"]), ("bare", "b", []), ("own", "c", ["c'"])]))
    assert without == 2


def test_a_run_in_which_no_query_has_a_negative_is_refused(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(ExportError, match="every negative is also a positive"):
        blocks(connection, triplet_rows([("q", "a", ["b"]), ("q", "b", ["a"])]))
