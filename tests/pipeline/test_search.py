"""Searching: every list from the tenant's own chunks, once, and only again where something changed."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.search
from conftest import execute, put, read
from pipeline.artifacts import Manifest, Run
from pipeline.retrievers.corpus import Corpus
from pipeline.retrievers.port import Hits, Retriever
from pipeline.search import SEARCH, search
from schemas.settings import PoolSettings
from schemas.tables import CHUNKS, QUERIES

Rows = Sequence[tuple[str, str, str]]
Build = Callable[[Corpus], Retriever]


class SharedWords:
    """Ranks chunks by the words that they share with the query; finds none that shares no word."""

    def __init__(self, name: str, corpus: Corpus, searched: list[tuple[str, str]]) -> None:
        self.name = name
        self._texts = [set(text.split()) for batch in corpus.batches() for text in batch]
        assert len(self._texts) == corpus.n_chunks
        self._searched = searched

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        self._searched += [(self.name, query) for query in queries]
        k = min(depth, len(self._texts))
        rows, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan, np.float32)
        for number, query in enumerate(queries):
            shared = [len(set(query.split()) & text) for text in self._texts]
            found = sorted((row for row in range(len(shared)) if shared[row]), key=lambda row: (-shared[row], row))[:k]
            rows[number, : len(found)] = found
            scores[number, : len(found)] = [shared[row] for row in found]
        return Hits(rows, scores)


def retrievers(searched: list[tuple[str, str]], names: Sequence[str] = ("one", "two")) -> Mapping[str, Build]:
    return {name: lambda corpus, name=name: SharedWords(name, corpus, searched) for name in names}  # type: ignore[misc]


def queries(rows: Rows) -> pa.Table:
    n = len(rows)
    tenant, ids, texts = ([row[column] for row in rows] for column in range(3))
    fixed = {"n_words": [1] * n, "language": ["en"] * n, "language_score": [1.0] * n, "cluster_id": [0] * n}
    named = {"tenant": tenant, "query_id": ids, "text": texts, "n_represented": [1] * n, "split": ["train"] * n}
    return QUERIES.rows(named | fixed)


def chunks(rows: Rows) -> pa.Table:
    n = len(rows)
    tenant, ids, texts = ([row[column] for row in rows] for column in range(3))
    numbers = {"position": [0] * n, "start": [0] * n, "end": [len(text) for text in texts]}
    return CHUNKS.rows(
        {"tenant": tenant, "chunk_id": ids, "doc_id": ids, "text": texts, "content_hash": texts} | numbers
    )


def searched(
    run: Run, asked: Rows, corpus: Rows, parts: Mapping[str, Build] | None = None, depth: int = 420
) -> list[tuple[str, str]]:
    """Search, and return what the retrievers were asked."""
    calls: list[tuple[str, str]] = []
    put(run, "queries", queries(asked))
    put(run, "chunks", chunks(corpus))
    searching(run, retrievers(calls) if parts is None else parts, depth)
    return calls


def searching(run: Run, parts: Mapping[str, Build], depth: int = 420) -> Manifest:
    chosen = PoolSettings(depth=1, search_depth=depth)
    return execute(run, SEARCH, lambda tables, output: search(tables, output, chosen, retrievers=parts))


def lists(run: Run) -> dict[tuple[object, ...], list[tuple[object, object]]]:
    """Each list as (chunk, score), once its ranks have been seen to count from 1."""
    found: dict[tuple[object, ...], list[tuple[object, object]]] = {}
    for row in read(run, "rankings"):
        ranked = found.setdefault((row["tenant"], row["query_id"], row["retriever"]), [])
        ranked.append((row["chunk_id"], row["score"]))
        assert row["rank"] == len(ranked)
    return found


CORPUS = [("t", "c0", "red"), ("t", "c1", "red green"), ("t", "c2", "blue"), ("t", "c3", "red green blue")]


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
    monkeypatch.setattr(pipeline.search, "QUERY_BLOCK", 4)
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


TWO_TENANTS = [*CORPUS, ("u", "c0", "red"), ("u", "c1", "blue")]
ASKED = [("t", "q0", "red"), ("u", "q0", "red")]


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
