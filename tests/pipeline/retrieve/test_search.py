"""Searching: every list from the tenant's own chunks, once, and only again where something changed."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import darklode.pipeline.retrieve.search
from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.pipeline.retrieve.search import RETRIEVAL_SCHEMA, SEARCH, retrieval, search
from darklode.schemas.pooling import PoolSettings
from helpers.runs import execute, put, read
from helpers.searching import (
    ASKED,
    CORPUS,
    TWO_TENANTS,
    Rows,
    SharedWords,
    chunks,
    lists,
    queries,
    retrievers,
    searched,
    searching,
)

EMBEDDED = own_retrievers()


def test_lists_hold_what_was_found_from_rank_one(run: Run) -> None:
    searched(run, [("t", "q0", "red green"), ("t", "q1", "none"), ("t", "q2", "blue")], CORPUS)
    assert lists(run) == {
        ("t", query, name): hits
        for name in ("one", "two")
        for query, hits in {
            "q0": [("c1", 2.0), ("c3", 2.0), ("c0", 1.0)],
            "q2": [("c2", 1.0), ("c3", 1.0)],
        }.items()
    }


def test_rows_stand_in_the_order_of_retrievers_queries_and_ranks(run: Run) -> None:
    calls: list[tuple[str, str]] = []
    searched(run, [("t", "q1", "red"), ("t", "q0", "red")], CORPUS, retrievers(calls, ("z", "a")))
    order = [(row["retriever"], row["query_id"], row["rank"]) for row in read(run, "rankings")]
    assert order == [(name, query, rank) for name in "za" for query in ("q1", "q0") for rank in (1, 2, 3)]


def test_lists_are_no_deeper_than_asked(run: Run) -> None:
    searched(run, [("t", "q", "red green blue")], CORPUS, depth=2)
    assert {len(ranked) for ranked in lists(run).values()} == {2}


def test_blocks_of_queries_make_the_same_lists(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [("t", f"q{n}", f"{'red' if n % 3 else 'blue'} {'green' if n % 2 else 'none'}") for n in range(11)]
    searched(run, asked, CORPUS)
    monkeypatch.setattr(darklode.pipeline.retrieve.search, "QUERY_BLOCK", 4)
    other = Run(str(tmp_path / "blocks"))
    searched(other, asked, CORPUS)
    assert read(other, "rankings") == read(run, "rankings")
    assert len(other.parts()["rankings"]) == 2 * 3


WORD = st.sampled_from("red green blue".split())
TEXTS = st.lists(st.lists(WORD, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=5)


@settings(max_examples=6, deadline=None)
@given(worlds=st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=3))
def test_tenants_never_meet(
    worlds: list[tuple[list[str], list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Ids are the same in every tenant, texts often: together, each finds what it finds alone."""
    asked = [(f"t{t}", f"q{n}", text) for t, world in enumerate(worlds) for n, text in enumerate(world[0])]
    corpus = [(f"t{t}", f"c{n}", text) for t, world in enumerate(worlds) for n, text in enumerate(world[1])]
    folder = tmp_path_factory.mktemp("tenants")
    together = Run(str(folder / "together"))
    searched(together, asked[::-1], corpus[::2] + corpus[1::2])
    for tenant in {row[0] for row in asked}:
        alone = Run(str(folder / tenant))
        searched(
            alone,
            [row for row in asked[::-1] if row[0] == tenant],
            [row for row in corpus[::2] + corpus[1::2] if row[0] == tenant],
        )
        assert {key: found for key, found in lists(together).items() if key[0] == tenant} == lists(alone)


def test_a_query_whose_tenant_has_no_chunks_is_rejected(run: Run) -> None:
    put(run, "queries", queries([("t", "q0", "red"), ("u", "q0", "red"), ("u", "q1", "blue")]))
    put(run, "chunks", chunks([*CORPUS, ("v", "c0", "red")]))
    calls: list[tuple[str, str]] = []
    manifest = searching(run, retrievers(calls))
    assert calls == [("one", "red"), ("two", "red")]
    assert [(row["tenant"], row["id"], row["table"], row["payload"]) for row in read(run, "rejects")] == [
        ("u", "q0", "queries", "red"),
        ("u", "q1", "queries", "blue"),
    ]
    assert {row["reason"] for row in read(run, "rejects")} == {"tenant has no documents"}
    assert {key[0] for key in lists(run)} == {"t"}
    step = manifest.funnel[0]
    assert (step.rows_in, step.rows_out, step.dropped) == (3, 6, {"tenant has no documents": 2})


def test_no_queries_no_lists(run: Run) -> None:
    assert searched(run, [], CORPUS) == []
    assert read(run, "rankings") == []


class BrokenError(Exception):
    pass


def broken(_corpus: Corpus) -> Retriever:
    raise BrokenError


def test_a_stopped_search_goes_on_with_the_next_retriever(run: Run, tmp_path: Path) -> None:
    asked = [("t", "q", "red"), ("u", "q", "blue")]
    corpus = [*CORPUS, ("u", "c0", "blue")]
    calls: list[tuple[str, str]] = []
    parts = retrievers(calls, ("one", "two", "three"))
    with pytest.raises(BrokenError):
        searched(run, asked, corpus, {**parts, "two": broken})
    assert calls == [("one", "red")]
    searching(run, parts)
    assert calls == [
        ("one", "red"),
        ("two", "red"),
        ("three", "red"),
        ("one", "blue"),
        ("two", "blue"),
        ("three", "blue"),
    ]
    fresh = Run(str(tmp_path / "fresh"))
    searched(fresh, asked, corpus, parts)
    assert fresh.parts()["rankings"] == run.parts()["rankings"]


@pytest.mark.parametrize(
    ("asked", "corpus", "again"),
    [
        (ASKED, TWO_TENANTS, []),
        ([*ASKED, ("t", "q1", "blue")], TWO_TENANTS, ["red", "blue"]),
        ([("t", "q0", "green"), ASKED[1]], TWO_TENANTS, ["green"]),
        ([("t", "q9", "red"), ASKED[1]], TWO_TENANTS, ["red"]),
        (ASKED, [*TWO_TENANTS, ("u", "c2", "green")], ["red"]),
        (ASKED, [*CORPUS, ("u", "c0", "green"), ("u", "c1", "blue")], ["red"]),
        (ASKED, [*CORPUS, ("u", "c1", "blue"), ("u", "c0", "red")], ["red"]),
        ([*ASKED, ("v", "q0", "red")], [*TWO_TENANTS, ("v", "c0", "red")], ["red"]),
    ],
)
def test_only_the_tenant_that_changed_is_searched_again(
    run: Run, tmp_path: Path, asked: Rows, corpus: Rows, again: list[str]
) -> None:
    searched(run, ASKED, TWO_TENANTS)
    assert searched(run, asked, corpus) == [(name, text) for name in ("one", "two") for text in again]
    fresh = Run(str(tmp_path / "fresh"))
    searched(fresh, asked, corpus)
    assert fresh.parts()["rankings"] == run.parts()["rankings"]


def test_names_with_slashes_are_not_taken_for_one_another(run: Run) -> None:
    calls: list[tuple[str, str]] = []
    same = [("q0", "red")]
    asked = [(tenant, *row) for tenant in ("a", "a/b") for row in same]
    corpus = [(tenant, "c0", "red") for tenant in ("a", "a/b")]
    searched(run, asked, corpus, retrievers(calls, ("b/c", "c")))
    assert set(lists(run)) == {(tenant, "q0", name) for tenant in ("a", "a/b") for name in ("b/c", "c")}
    assert len(calls) == 4


@pytest.mark.parametrize("fails", [False, True])
def test_the_scratch_folder_is_there_for_the_search_and_gone_after_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    seen: list[Path] = []

    def build(corpus: Corpus) -> Retriever:
        (corpus.scratch / "vectors.npy").write_bytes(b"x")
        seen.append(corpus.scratch)
        return broken(corpus) if fails else SharedWords("one", corpus, [])

    if fails:
        with pytest.raises(BrokenError):
            searched(run, ASKED[:1], CORPUS, {"one": build})
    else:
        searched(run, ASKED, TWO_TENANTS, {"one": build})
    assert len(set(seen)) == (1 if fails else 2)
    assert all(path.parent == scratch for path in seen)
    assert list(scratch.iterdir()) == []


def test_progress_counts_every_search(run: Run) -> None:
    put(run, "queries", queries(ASKED))
    put(run, "chunks", chunks(TWO_TENANTS))
    told: list[tuple[int, int | None]] = []
    parts = retrievers([])
    run.execute(
        run.plan(SEARCH, {}),
        lambda tables, output: search(tables, output, PoolSettings(), retrievers=parts),
        lambda done, total, _note: told.append((done, total)),
    )
    assert told[-1] == (4, 4)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def bm25(corpus: Corpus) -> Retriever:
    return EMBEDDED["bm25"](corpus)


def search_with(run: Run, embedding: dict[str, object]) -> list[dict[str, object]]:
    def work(tables: Tables, output: Output) -> None:
        output.facts["embedding"] = embedding
        search(tables, output, PoolSettings(), retrievers={"bm25": bm25, "neural": bm25})

    execute(run, SEARCH, work)
    rows: list[dict[str, object]] = retrieval(run).to_pylist()
    return rows


def test_before_the_first_search_there_is_nothing(run: Run) -> None:
    assert retrieval(run).schema.equals(RETRIEVAL_SCHEMA)
    assert retrieval(run).num_rows == 0


def test_rows_sum_over_tenants_and_lists_that_stood_still_count(run: Run) -> None:
    put(run, "queries", queries(ASKED))
    put(run, "chunks", chunks(TWO_TENANTS))
    work = {"texts": 10, "encoded": 4, "seconds": 2.0, "bytes": 64, "cost": 0.5, "gpu": None}
    first = search_with(run, {"neural": work})
    assert [row["retriever"] for row in first] == ["bm25", "neural"]
    assert [row["chunks"] for row in first] == [len(TWO_TENANTS)] * 2
    assert [first[0][name] for name in ("encoded", "cache_hits", "bytes_cached", "cost", "gpu", "recall")] == [None] * 6
    found = {name: first[1][name] for name in ("chunks_per_second", "encoded", "cache_hits", "bytes_cached", "cost")}
    assert found == {"chunks_per_second": 2.0, "encoded": 4, "cache_hits": 0.6, "bytes_cached": 64, "cost": 0.5}
    put(run, "queries", queries([*ASKED[:-1], (ASKED[-1][0], ASKED[-1][1], "other words")]))
    second = search_with(run, {"neural": work | {"encoded": 0, "seconds": 0.0}})
    assert [row["chunks"] for row in second] == [len(TWO_TENANTS)] * 2
    assert second[1]["chunks_per_second"] is None, "nothing was encoded: no rate, which is not 0"
    assert second[1]["cache_hits"] == 1.0


def test_indexes_of_chunks_that_are_gone_are_deleted(run: Run) -> None:
    put(run, "queries", queries(ASKED))
    put(run, "chunks", chunks(TWO_TENANTS))
    search_with(run, {})
    before = run.store.folders("indexes")
    put(run, "chunks", chunks([*TWO_TENANTS[:-1], (*TWO_TENANTS[-1][:2], "quite another text")]))
    search_with(run, {})
    after = run.store.folders("indexes")
    assert (len(before), len(after), len({*before, *after})) == (2, 2, 3)
