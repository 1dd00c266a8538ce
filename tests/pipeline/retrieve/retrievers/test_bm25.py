"""BM25 against rank_bm25 and against bm25s's own index and search, both written independently."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.retrieve.retrievers.bm25 import DELTA, FIXED_SETTINGS, Bm25, best_keys, build_index, score_blocks
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.schemas.pooling import Bm25Settings
from helpers.bm25_texts import METHODS, TEXTS, WORDS, random_chunks

EMBEDDED = own_retrievers()


@cache
def copies(n: int) -> TermSpace:
    """About n chunks among which every score comes n / 49 times."""
    return TermSpace([random_chunks(49) * (n // 49) + ["word1"]])


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


def test_the_order_of_the_words_does_not_change_a_bit_of_a_score() -> None:
    index = Bm25(TermSpace([random_chunks(500)]))
    words = [f"word{number}" for number in (2, 3, 5, 7, 9, 11, 2)]
    hits = index.search([" ".join(words), " ".join(reversed(words))], 500)
    np.testing.assert_array_equal(*hits.scores)
    np.testing.assert_array_equal(*hits.rows)


def test_no_queries_give_no_rows() -> None:
    assert Bm25(TermSpace([["heat"]])).search([], depth=5).rows.shape == (0, 1)


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4), (2.0, 1.0), (1.2, 0.0)])
@pytest.mark.parametrize("method", METHODS)
def test_the_index_is_bit_for_bit_that_of_bm25s(method: str, k1: float, b: float) -> None:
    terms = TermSpace([[*random_chunks(200), ""]])
    ids = [np.repeat(row.indices, row.data.astype(int)).tolist() for row in terms.counts]
    theirs = bm25s.BM25(method=method, k1=k1, b=b, delta=DELTA.get(method, 0.5))
    theirs.index((ids, dict(terms.vocabulary)), create_empty_token=False, show_progress=False)
    ours = build_index(terms, Bm25Settings(method=method, k1=k1, b=b))
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(ours.scores[name], theirs.scores[name])
    np.testing.assert_array_equal(ours.nonoccurrence_array, theirs.nonoccurrence_array)


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 3000, 70_000])
@pytest.mark.parametrize("method", METHODS)
def test_the_best_are_those_of_a_full_sort_of_bm25s_scores(method: str, n: int) -> None:
    terms = copies(n)
    chosen = Bm25Settings(method=method)
    queries = ["word1 word2", "word7", "word300 word12 word12", "word3 absent"]
    hits = Bm25(terms, chosen).search(queries, depth=60)
    engine = build_index(terms, chosen)
    for number, query in enumerate(queries):
        known = sorted(terms.vocabulary[term] for term in terms.tokenize(query) if term in terms.vocabulary)
        scores = engine.get_scores_from_ids(known)
        floor = 0 if engine.nonoccurrence_array is None else engine.nonoccurrence_array[known].sum()
        order = np.lexsort((np.arange(terms.n_chunks), -scores))[:60]
        order = order[scores[order] > floor]
        assert hits.rows[number][: len(order)].tolist() == order.tolist()
        np.testing.assert_array_equal(hits.scores[number][: len(order)], scores[order])
        assert (hits.rows[number][len(order) :] == -1).all()


@given(
    values=st.lists(st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.5]), min_size=1, max_size=80),
    k=st.integers(1, 80),
    few=st.sampled_from([0, 1 << 16]),
)
def test_the_best_rows_of_any_scores(values: list[float], k: int, few: int) -> None:
    k = min(k, len(values))
    blocks = score_blocks(len(values), k)
    blocks.reshape(-1)[: len(values)] = values
    expected = [row for row in np.argsort(-np.array(values), kind="stable")[:k] if values[row] > 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("darklode.pipeline.retrieve.retrievers.bm25._MAX_CELLS_AT_ONCE", few)
        keys = np.sort(best_keys(blocks, k))
        assert (keys & 0xFFFFFFFF).tolist() == expected


def test_batches_of_queries_and_threads_do_not_change_a_hit() -> None:
    index = Bm25(TermSpace([random_chunks(2000)]))
    queries = [f"word{number} word{number // 2}" for number in range(1, 60)]
    whole = index.search(queries, 100)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda query: index.search([query], 100), queries * 2))
    np.testing.assert_array_equal(np.vstack([hits.rows for hits in parts]), np.tile(whole.rows, (2, 1)))
    np.testing.assert_array_equal(np.vstack([hits.scores for hits in parts]), np.tile(whole.scores, (2, 1)))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_ranks_and_k1_of_zero_only_asks_whether(method: str) -> None:
    terms = TermSpace([["heat heat heat", "heat", "wing", "nozzle", "panel", ""]])
    plain = Bm25(terms, Bm25Settings(method=method, b=0)).search(["heat"], 6)
    assert plain.rows[0].tolist() == [0, 1, -1, -1, -1, -1]
    once = Bm25(terms, Bm25Settings(method=method, k1=0)).search(["heat wing"], 6)
    assert len(set(once.scores[0][once.rows[0] >= 0])) <= 2
    assert not np.isin(once.rows, [3, 4, 5]).any()


def corpus_of(chunks: list[str], scratch: Path) -> Corpus:
    return Corpus(lambda: iter([chunks]), len(chunks), scratch)


def test_settings_move_the_retriever_and_not_the_seeds(tmp_path: Path) -> None:
    chunks = ["heat heat heat heat panel", "heat wing", "the heated", "nozzle"]
    plain, moved = corpus_of(chunks, tmp_path), corpus_of(chunks, tmp_path)
    flat = Bm25Settings(k1=0, b=0, stemmer=None, stop_words=False)
    changed = moved.bm25(flat).search(["heat", "the"], 4)
    assert changed.rows.tolist() == [[0, 1, -1, -1], [2, -1, -1, -1]]
    before, after = (corpus.seeds.search(["heat", "the"], 4) for corpus in (plain, moved))
    assert before.rows.tolist() == after.rows.tolist() == [[0, 2, 1, -1], [-1] * 4]
    np.testing.assert_array_equal(before.scores, after.scores)


def test_equal_settings_build_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Bm25Settings] = []

    def counted(terms: TermSpace, chosen: Bm25Settings) -> object:
        built.append(chosen)
        return build_index(terms, chosen)

    monkeypatch.setattr("darklode.pipeline.retrieve.retrievers.corpus.build_index", counted)
    corpus = corpus_of(["heat", "wing"], tmp_path)
    corpus.seeds.search(["heat"], 1)
    assert EMBEDDED["bm25"](corpus) is corpus.bm25(Bm25Settings())
    assert built == [FIXED_SETTINGS] == [Bm25Settings()]
    corpus.bm25(Bm25Settings(k1=1))
    assert len(built) == 2


def test_stemmers_and_stop_words() -> None:
    assert Analyzer().tokenize("the heated wings") == ["heat", "wing"]
    assert Analyzer(stop_words=False).tokenize("the heated wings") == ["the", "heat", "wing"]
    assert Analyzer(None).tokenize("the heated wings") == ["heated", "wings"]
    assert Analyzer("german", stop_words=False).tokenize("der Häuser") == ["der", "haus"]
    with pytest.raises(SettingsError, match=r"no Snowball stemmer klingon; null for none, or one of arabic, .*german"):
        Analyzer("klingon")


NO_SPACES = [
    "東京都の天気予報",
    "大阪の地図を検索する",
    "北京市天气预报",
    "การค้นหาข้อมูล",
    "ភាសាខ្មែរ",
    "서울의 날씨 예보",
]


@pytest.mark.parametrize("stemmer", [None, *Stemmer.algorithms()])
def test_scripts_without_spaces_are_found_by_pairs_with_every_stemmer(stemmer: str | None) -> None:
    analyzer = Analyzer(stemmer)
    assert analyzer.tokenize("天気予報、検索API") == [
        "天気",
        "気予",
        "予報",
        "検索",
        *Analyzer(stemmer).tokenize("api"),
    ]
    index = Bm25(TermSpace([NO_SPACES], analyzer))
    queries = ["天気予報", "検索", "天气", "ค้นหา", "ខ្មែរ", "날씨"]
    assert index.search(queries, 1).rows.ravel().tolist() == [0, 1, 2, 3, 4, 5]
    assert index.search(["東", "雪"], 1).rows.tolist() == [[-1], [-1]], "one character is no pair"
