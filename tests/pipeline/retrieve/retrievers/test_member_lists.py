"""Kept rankings: which are, and how often a retriever is searched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.member_lists import ListedRetriever, MemberLists, member_key, shared_depths
from darklode.pipeline.retrieve.retrievers.port import UNUSED_SCHEMA, Retriever
from helpers.searching import SharedWords

TEXTS = ["red", "red green", "blue", "red green blue"]


@dataclass(frozen=True)
class Named:
    """A builder with an identity, and members."""

    identity: str
    members: tuple[tuple[str, Named], ...] = ()
    member_depth: int = 0


def test_those_that_occur_again_as_members_are_kept_whatever_their_names() -> None:
    one, two, three = Named("one"), Named("two"), Named("three")
    inner = Named("inner", (("a", one), ("b", two)), 9)
    assert shared_depths([one, two, three]) == {}
    assert shared_depths([one, three, Named("outer", (("x", inner),), 5)]) == {member_key(one): 9}
    assert shared_depths([inner, Named("outer", (("x", inner), ("y", two)), 20)]) == {
        member_key(inner): 20,
        member_key(one): 9,
        member_key(two): 20,
    }
    assert shared_depths([lambda corpus: corpus]) == {}, "builders without an identity have no members"


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(lambda: iter([TEXTS]), len(TEXTS), tmp_path)


def listed(corpus: Corpus, calls: list[tuple[str, str]]) -> ListedRetriever:
    build: Callable[[], Retriever] = lambda: SharedWords("words", corpus, calls)  # noqa: E731
    return ListedRetriever(build, corpus.scratch, "0" * 8, corpus.n_chunks)


def test_a_list_is_searched_once_and_serves_smaller_depths_also_of_another_corpus(corpus: Corpus) -> None:
    calls: list[tuple[str, str]] = []
    first = listed(corpus, calls)
    full = first.search(["red green", "blue"], 3)
    assert full.rows.tolist() == [[1, 3, 0], [2, 3, -1]]
    again = listed(corpus, calls)
    cut = again.search(["red green", "blue"], 2)
    assert (cut.rows.tolist(), cut.scores.tolist()) == (full.rows[:, :2].tolist(), full.scores[:, :2].tolist())
    assert len(calls) == 2
    assert again.recall is None, "it was not even built"
    assert again.search(["red green", "blue"], 99).rows.shape == (2, 4)
    assert again.search(["blue"], 1).rows.tolist() == [[2]]
    assert len(calls) == 5, "a deeper list, and other queries, are searched"


def test_a_list_that_others_need_deeper_is_searched_so_deep_at_once(corpus: Corpus) -> None:
    calls: list[tuple[str, str]] = []
    ours = ListedRetriever(lambda: SharedWords("words", corpus, calls), corpus.scratch, "2" * 8, corpus.n_chunks, 3)
    assert ours.search(["red"], 1).rows.tolist() == [[0]]
    assert ours.search(["red"], 3).rows.tolist() == [[0, 1, 3]]
    assert len(calls) == 1


def test_a_corpus_keeps_the_lists_of_shared_retrievers_only(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    @dataclass(frozen=True)
    class Words:
        identity: str
        shares = "words"

        def __call__(self, corpus: Corpus) -> Retriever:
            return SharedWords(self.identity, corpus, calls)

    lists = MemberLists(tmp_path, {member_key(Words("a")): 1})
    corpus = Corpus(lambda: iter([TEXTS]), len(TEXTS), tmp_path, lists=lists)
    for name in ("a", "b"):
        assert corpus.open(Words(name)).name == name
        for _ in range(2):
            corpus.member(Words(name)).search(["red"], 2)
    assert calls == [("a", "red"), ("b", "red"), ("b", "red")]


def test_what_a_retriever_could_not_use_is_reported_once(corpus: Corpus) -> None:
    class Leaving(SharedWords):
        @property
        def unused(self) -> pa.Table:
            return pa.table({name: ["x"] if name != "line" else [1] for name in UNUSED_SCHEMA.names}, UNUSED_SCHEMA)

    ours = ListedRetriever(lambda: Leaving("words", corpus, []), corpus.scratch, "1" * 8, corpus.n_chunks)
    assert ours.unused.num_rows == 0
    ours.search(["red"], 1)
    assert [ours.unused.num_rows, ours.unused.num_rows] == [1, 0]
