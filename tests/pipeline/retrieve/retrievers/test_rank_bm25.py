"""The rank-bm25 engine: the same hits as our own, where the two libraries mean the same formula."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25L, BM25Okapi, BM25Plus

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.retrieve.retrievers.bm25 import Bm25
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.rank_bm25 import RankBm25
from darklode.schemas.pooling import Bm25Settings
from helpers.bm25_texts import TEXTS, WORDS, random_chunks

AGREEING = ("lucene", "robertson", "atire", "bm25+")


def both(chunks: list[str], chosen: Bm25Settings) -> tuple[Bm25, RankBm25]:
    return Bm25(TermSpace([chunks]), chosen), RankBm25([chunks], Analyzer(), chosen)


def by_row(retriever: Bm25 | RankBm25, query: str, n: int) -> np.ndarray:
    hits = retriever.search([query], n)
    scores = np.full(n, np.nan)
    found = hits.rows[0] >= 0
    scores[hits.rows[0][found]] = hits.scores[0][found]
    return scores


@settings(deadline=None, max_examples=60)
@given(
    chunks=TEXTS,
    query=st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=5).map(" ".join),
    method=st.sampled_from(AGREEING),
    k1=st.sampled_from([0.0, 0.5, 1.5]),
    b=st.sampled_from([0.0, 0.75, 1.0]),
)
def test_both_engines_find_the_same(chunks: list[str], query: str, method: str, k1: float, b: float) -> None:
    ours, theirs = both(chunks, Bm25Settings(method=method, k1=k1, b=b))
    np.testing.assert_allclose(by_row(ours, query, len(chunks)), by_row(theirs, query, len(chunks)), rtol=2e-5)


def test_robertson_times_k1_plus_1_is_okapi_without_epsilon() -> None:
    chunks = random_chunks(300)
    ours, theirs = both(chunks, Bm25Settings(method="robertson", k1=1.2, b=0.6))
    terms = TermSpace([chunks])
    oracle = BM25Okapi([terms.tokenize(chunk) for chunk in chunks], k1=1.2, b=0.6, epsilon=0)
    for query in ("word40 word41", "word1", "word90 word2 word2"):
        expected = oracle.get_scores(terms.tokenize(query))
        found = np.nan_to_num(by_row(ours, query, len(chunks))) * 2.2
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        np.testing.assert_allclose(np.nan_to_num(by_row(theirs, query, len(chunks))) * 2.2, expected, rtol=1e-5)
    common = BM25Okapi([terms.tokenize(chunk) for chunk in chunks], k1=1.2, b=0.6)
    assert (common.get_scores(["word1"]) != 0).any(), "the default epsilon gives a weight to terms of most chunks"
    assert np.isnan(by_row(ours, "word1", len(chunks))).all()


def test_bm25_plus_agrees_with_the_library_itself() -> None:
    chunks = random_chunks(200)
    ours, _ = both(chunks, Bm25Settings(method="bm25+"))
    terms = TermSpace([chunks])
    expected = BM25Plus([terms.tokenize(chunk) for chunk in chunks], delta=1).get_scores(["word40", "word7"])
    found = by_row(ours, "word40 word7", len(chunks))
    assert 0 < np.isfinite(found).sum() < len(chunks)
    np.testing.assert_allclose(found[np.isfinite(found)], expected[np.isfinite(found)], rtol=1e-5)


def test_bm25l_agrees_for_one_term_that_occurs_once_and_not_beyond() -> None:
    once = ["heat wing", "heat panel nozzle flutter", "wing"]
    ours, theirs = both(once, Bm25Settings(method="bm25l"))
    np.testing.assert_allclose(by_row(ours, "heat", 3), by_row(theirs, "heat", 3), rtol=1e-5)
    np.testing.assert_allclose(by_row(theirs, "heat", 3)[:2], BM25L([c.split() for c in once]).get_scores(["heat"])[:2])
    ours, theirs = both(["heat heat", "wing", "panel"], Bm25Settings(method="bm25l"))
    np.testing.assert_allclose(2 * by_row(ours, "heat", 3)[0], by_row(theirs, "heat", 3)[0], rtol=1e-5)


@pytest.mark.parametrize("chunks", [["", "..."], ["the of"], [""]])
def test_a_corpus_without_terms_has_no_hits(chunks: list[str]) -> None:
    hits = RankBm25([chunks], Analyzer(), Bm25Settings()).search(["heat", ""], 5)
    assert hits.rows.tolist() == [[-1] * len(chunks)] * 2
    assert np.isnan(hits.scores).all()


def test_it_is_reached_by_its_setting_and_ties_go_to_the_first(tmp_path: Path) -> None:
    chunks = ["heat", "wing", "heat", "panel", "nozzle"]
    retriever = Corpus(lambda: iter([chunks]), 5, tmp_path).bm25(Bm25Settings(engine="rank_bm25"))
    assert (type(retriever), retriever.name) == (RankBm25, "bm25")
    assert retriever.search(["heating"], 3).rows.tolist() == [[0, 2, -1]]
    assert retriever.search([], 3).rows.shape == (0, 3)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("darklode.pipeline.retrieve.retrievers.rank_bm25.import_module", gone)
    with pytest.raises(MissingPart, match="pip install rank-bm25"):
        RankBm25([["heat"]], Analyzer(), Bm25Settings())
    assert importlib.import_module("rank_bm25")
