"""Shards travel as plain data, results wait below the root, and where the work is done changes nothing."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.base.sharding import Pieces, cuts, load_shard_result, save_shard_result, split_evenly
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.retrieve.search import SEARCH, search
from darklode.schemas.pooling import PoolSettings
from helpers.elsewhere import Elsewhere
from helpers.runs import execute, put
from helpers.searching import ASKED, TWO_TENANTS, Rows, chunks, lists, queries

EMBEDDED = own_retrievers()


PARTS = {"bm25": EMBEDDED["bm25"], "lsa": EMBEDDED["lsa_feedback"]}


def put_both(run: Run, asked: Rows, corpus: Rows) -> None:
    put(run, "queries", queries(asked))
    put(run, "chunks", chunks(corpus))


def searched(run: Run, places: int) -> list[str]:
    elsewhere = Elsewhere(run.store, places)

    def work(tables: Tables, output: Output) -> None:
        search(tables, output, PoolSettings(), retrievers=PARTS, spread=elsewhere)

    execute(run, SEARCH, work)
    return elsewhere.names


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (2, ["search t bm25 lsa", "search u bm25 lsa"]),
        (3, ["search t bm25", "search t lsa", "search u bm25", "search u lsa"]),
    ],
)
def test_shards_elsewhere_make_the_same_parts(run: Run, tmp_path: Path, places: int, names: list[str]) -> None:
    put_both(run, ASKED, TWO_TENANTS)
    assert searched(run, places) == names
    here = Run(str(tmp_path / "here"))
    put_both(here, ASKED, TWO_TENANTS)
    execute(here, SEARCH, lambda tables, output: search(tables, output, PoolSettings(), retrievers=PARTS))
    assert run.parts()["rankings"] == here.parts()["rankings"]
    assert len(lists(run)) == 4
    assert not run.store.sizes("progress/search")


def test_only_what_is_missing_travels(run: Run) -> None:
    put_both(run, ASKED, TWO_TENANTS)
    searched(run, 1)
    put_both(run, [ASKED[0], ("u", "q0", "blue")], TWO_TENANTS)
    assert searched(run, 9) == ["search u bm25", "search u lsa"]


def pieces(*values: int) -> Pieces:
    for value in values:
        yield pa.table({"value": [value]})


def never() -> Pieces:
    raise AssertionError("it is there already")
    yield


def test_a_result_that_waits_is_not_made_again(run: Run) -> None:
    assert save_shard_result(run.store, "progress/x/a", pieces(1, 2)) == 2
    assert save_shard_result(run.store, "progress/x/a", never()) == 2
    assert [piece["value"].to_pylist() for piece in load_shard_result(run.store, "progress/x/a", 2)] == [[1], [2]]


def test_work_without_a_result_is_always_done(run: Run) -> None:
    assert save_shard_result(run.store, "progress/x/a", pieces()) == 0
    with pytest.raises(AssertionError, match="there already"):
        save_shard_result(run.store, "progress/x/a", never())


@pytest.mark.parametrize(
    ("sizes", "ranges"),
    [
        ([], []),
        ([9], [(0, 1)]),
        ([3, 3, 3], [(0, 1), (1, 3)]),
        ([1] * 4, [(0, 4)]),
        ([9, 1, 9], [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_neighbours_go_together_as_far_as_there_is_room(sizes: list[int], ranges: list[tuple[int, int]]) -> None:
    assert cuts(sizes, 5) == ranges


@pytest.mark.parametrize(
    ("count", "shards", "cuts"),
    [(0, 3, []), (2, 3, [(0, 1), (1, 2)]), (7, 3, [(0, 2), (2, 4), (4, 7)]), (4, 1, [(0, 4)])],
)
def test_things_are_dealt_in_their_order_and_nobody_gets_none(
    count: int, shards: int, cuts: list[tuple[int, int]]
) -> None:
    assert split_evenly(count, shards) == cuts
