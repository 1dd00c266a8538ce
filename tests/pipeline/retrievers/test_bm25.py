"""BM25 against rank_bm25, written independently."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from pipeline.retrievers.bm25 import Bm25
from pipeline.terms import TermSpace

WORDS = ["wing", "shock", "heat", "panel", "flutter", "nozzle"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=12)


def oracle_scores(chunks: list[str], query: str) -> np.ndarray:
    """BM25Okapi's term weights with Lucene's idf, without its constant factor k1 + 1."""
    terms = TermSpace([chunks])
    corpus = [terms.tokenize(chunk) for chunk in chunks]
    oracle = BM25Okapi(corpus, k1=1.5, b=0.75)
    for term in oracle.idf:
        frequency = sum(term in chunk for chunk in corpus)
        oracle.idf[term] = np.log(1 + (len(corpus) - frequency + 0.5) / (frequency + 0.5))
    return np.asarray(oracle.get_scores(terms.tokenize(query)) / 2.5)


@settings(deadline=None)
@given(chunks=TEXTS, query=st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=5).map(" ".join))
def test_scores_and_order_equal_the_oracle(chunks: list[str], query: str) -> None:
    hits = Bm25(TermSpace([chunks])).search([query], depth=len(chunks))
    known = any(chunk for chunk in chunks)
    expected = oracle_scores(chunks, query) if known else np.zeros(len(chunks))
    found = hits.rows[0] >= 0
    assert sorted(hits.rows[0][found]) == np.flatnonzero(expected > 0).tolist()
    np.testing.assert_allclose(hits.scores[0][found], expected[hits.rows[0][found]], rtol=1e-5)
    assert np.isnan(hits.scores[0][~found]).all()


def test_rare_terms_weigh_more_and_ties_go_to_the_first() -> None:
    chunks = ["heat panel", "heat wing", "heat wing", "heat flutter", "heat heat"]
    hits = Bm25(TermSpace([chunks])).search(["flutter heat", "wing", "absent", "the of"], depth=3)
    assert hits.rows[0][0] == 3
    assert hits.rows[1].tolist() == [1, 2, -1]
    assert hits.rows[2:].tolist() == [[-1] * 3] * 2


def test_a_repeated_query_word_counts_twice() -> None:
    index = Bm25(TermSpace([["heat panel", "wing", "nozzle"]]))
    once, twice = index.search(["heat", "heat heat"], depth=1).scores.ravel()
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-6)


def test_no_queries_give_no_rows() -> None:
    assert Bm25(TermSpace([["heat"]])).search([], depth=5).rows.shape == (0, 1)
