"""The embedded judge: its formula and what it promises; windows and meaning against plain ways to find them."""

import asyncio
import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.judge.embedded import (
    FORMULA,
    THRESHOLD,
    WINDOW_TERMS,
    EmbeddedJudge,
    SemanticSpace,
    best_window,
    row_products,
)
from darklode.pipeline.judge.kinds.embedded import EmbeddedSettings
from darklode.pipeline.judge.port import PAIRS, REPLIES
from darklode.pipeline.retrieve.retrievers.bm25 import Bm25
from darklode.pipeline.retrieve.retrievers.port import Hits

CORPUS = [
    "Billing\nHow to download an invoice: open billing, choose the month, press download invoice.",
    "Billing\nRefunds are paid to the card that was charged, within five working days.",
    "Accounts\nReset a forgotten password with the link in the e-mail; the link expires after an hour.",
    "Accounts\nPasswords need twelve characters. An administrator can enforce two factors.",
    "Search\nThe index is refreshed every second. Shards and replicas spread the load over nodes.",
    "Search\nSnapshots copy the index to object storage; restore them on another cluster.",
    "重置密码 的 链接 一小时 后 过期。发票 可以 在 账单 页面 下载。",
    "the of and to",
    "",
]
QUERIES = [
    "download invoice",
    "reset forgotten password",
    "restore index snapshot",
    "重置密码",
    "to be or not to be",
    "",
]


def pairs(queries: list[str], texts: list[str]) -> pa.Table:
    """Every query with every text, query by query."""
    rows = [
        {"query": query, "text": text, "tenant": "a", "query_id": query, "chunk_id": text}
        | {"query_hash": hashlib.sha256(query.encode()).hexdigest(), "chunk_hash": text, "title": None, "heading": None}
        for query in queries
        for text in texts
    ]
    return pa.Table.from_pylist(rows, schema=PAIRS)


def fitted(corpus: list[str], **changed: float) -> EmbeddedJudge:
    return EmbeddedJudge(TermSpace([corpus]), **changed)


def judged(judge: EmbeddedJudge, asked: pa.Table) -> pa.Table:
    return asyncio.run(judge.judge(asked))


SPACE_OF_CORPUS = TermSpace([CORPUS])
JUDGE, JUDGE_MEANING = EmbeddedJudge(SPACE_OF_CORPUS), SemanticSpace(SPACE_OF_CORPUS)
ALL = pairs(QUERIES, CORPUS)
REPLIED = judged(JUDGE, ALL)


def probability(query: str, text: str, judge: EmbeddedJudge = JUDGE) -> float:
    return float(judged(judge, pairs([query], [text]))["probability"][0].as_py())


def test_replies_follow_the_port() -> None:
    assert REPLIED.schema.equals(REPLIES)
    assert REPLIED.num_rows == len(QUERIES) * len(CORPUS)
    assert REPLIED["error"].null_count == REPLIED["grade"].null_count == REPLIED.num_rows


@pytest.mark.parametrize(("query", "best"), [(0, 0), (1, 2), (2, 5), (3, 6)])
def test_the_chunk_that_answers_is_relevant_and_ahead_of_all_others(query: int, best: int) -> None:
    row = REPLIED.slice(query * len(CORPUS), len(CORPUS))
    said = row["probability"].to_numpy()
    assert said.argmax() == best
    assert row["relevant"].to_pylist()[best] is True
    assert not any(row["relevant"].to_pylist()[-2:]), "a chunk of stop words, or empty"


@pytest.mark.parametrize("query", ["to be or not to be", "", "zyzzyva", "?!"])
def test_a_query_of_unknown_words_is_not_relevant_to_anything_at_the_formulas_lowest_probability(query: str) -> None:
    said = judged(JUDGE, pairs([query], CORPUS))
    assert set(said["relevant"].to_pylist()) == {False}
    assert said["probability"].to_pylist() == pytest.approx(
        [1 / (1 + np.exp(-FORMULA.intercept))] * len(CORPUS), abs=1e-6
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, ALL.num_rows - 1), min_size=1, max_size=40))
def test_a_pairs_reply_does_not_depend_on_the_pairs_around_it(rows: list[int]) -> None:
    assert judged(JUDGE, ALL.take(rows)).equals(REPLIED.take(rows))


def test_pairs_in_slices_and_chunked_columns_get_the_same_replies() -> None:
    pieces = [judged(JUDGE, ALL.slice(start, 7)) for start in range(0, ALL.num_rows, 7)]
    assert pa.concat_tables(pieces).equals(REPLIED)
    ragged = pa.concat_tables([ALL.slice(0, 5), ALL.slice(5, 11), ALL.slice(16)])
    assert judged(JUDGE, ragged).equals(REPLIED)


def test_more_pairs_than_are_scored_at_once_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darklode.pipeline.judge.embedded._PAIRS_AT_ONCE", 4)
    assert judged(JUDGE, ALL).equals(REPLIED)


def test_fitting_again_gives_the_same_id_and_replies() -> None:
    again = fitted(CORPUS)
    assert again.judge_id == JUDGE.judge_id
    assert judged(again, ALL).equals(REPLIED)


def test_the_id_names_the_method_and_changes_with_the_corpus_and_the_settings() -> None:
    ids = {JUDGE.judge_id, fitted([*CORPUS, "one more"]).judge_id, fitted(CORPUS, threshold=0.4).judge_id}
    assert len(ids) == 3
    assert all(judge_id.startswith("embedded-3:") for judge_id in ids)


def test_the_id_tells_corpora_apart_that_differ_in_a_word_only() -> None:
    assert fitted(["alpha beta", "gamma"]).judge_id != fitted(["delta beta", "gamma"]).judge_id


def test_the_threshold_alone_decides_what_a_probability_means() -> None:
    strict = judged(fitted(CORPUS, threshold=0.99), ALL)
    assert strict["probability"].equals(REPLIED["probability"])
    expected = [said >= 0.99 for said in REPLIED["probability"].to_pylist()]
    assert strict["relevant"].to_pylist() == expected
    assert REPLIED["relevant"].to_pylist() != expected


def test_the_setting_has_the_threshold_of_the_formula() -> None:
    assert EmbeddedSettings().threshold == THRESHOLD


def test_title_and_heading_are_read() -> None:
    asked = pairs(["refunds"], ["within five working days"])
    titled = asked.set_column(asked.schema.get_field_index("title"), PAIRS.field("title"), pa.array(["Refunds"]))
    assert judged(JUDGE, titled)["probability"][0].as_py() > judged(JUDGE, asked)["probability"][0].as_py()


def test_features_of_the_corpuss_best_chunk_reach_their_bounds() -> None:
    features = JUDGE.features(pairs(["download invoice"], CORPUS))
    assert features.coverage[0] == 1
    assert features.window[0] == 1
    assert features.bm25[0] == pytest.approx(1, abs=1e-6)
    assert features.meaning.max() == 1


@pytest.mark.parametrize("query", ["reset the index every hour", "index index snapshots", "billing invoice card"])
def test_its_bm25_is_that_of_the_retriever(query: str) -> None:
    found = Bm25(TermSpace([CORPUS])).search([query], len(CORPUS))
    hit = found.rows[0] >= 0
    expected = np.zeros(len(CORPUS))
    expected[found.rows[0][hit]] = found.scores[0][hit] / found.scores[0][0]
    np.testing.assert_allclose(JUDGE.features(pairs([query], CORPUS)).bm25, expected, rtol=1e-5)
    assert hit.sum() > 1


@pytest.mark.parametrize("query", ["invoice for a zebra from the circus", "password of the payroll and vacation tool"])
def test_a_query_of_which_the_corpus_knows_a_word_or_two_ends_without_a_positive(query: str) -> None:
    """Its best find is the best there is, and still no answer."""
    said = judged(JUDGE, pairs([query], CORPUS))
    assert max(said["probability"].to_pylist()) > probability("zyzzyva", CORPUS[0])
    assert not any(said["relevant"].to_pylist())


def test_words_that_the_corpus_does_not_know_are_asked_for_too_and_repeated_ones_once() -> None:
    texts = ["download invoice", "download download invoice", "download invoice zyzzyva"]
    known, repeated, strange = JUDGE.features(pairs(texts, CORPUS[:1])).answered
    assert known == repeated == 1
    idf = {term: SPACE_OF_CORPUS.idf[SPACE_OF_CORPUS.vocabulary[term]] for term in ("download", "invoic")}
    rarest = np.log((len(CORPUS) + 1) / 0.5)
    assert strange == pytest.approx(sum(idf.values()) / (sum(idf.values()) + rarest), rel=1e-6)


def test_information_is_one_where_chance_would_put_the_terms_into_one_chunk() -> None:
    """Two terms, each in an eighth of 63 chunks: (1/8)² of them, one, would hold both by chance."""
    corpus = ["alpha beta"] + ["alpha"] * 7 + ["beta"] * 7 + ["gamma"] * 48
    information = fitted(corpus).features(pairs(["alpha beta"], ["alpha beta", "alpha", "gamma"])).information
    exact = 2 * np.log(64 / 8.5) / np.log(64)
    np.testing.assert_allclose(information, [exact, exact / 2, 0], rtol=1e-6)
    assert exact == pytest.approx(1, abs=0.05)


def test_distance_is_that_from_all_chunks_of_the_corpus_in_standard_deviations() -> None:
    distance = JUDGE.features(pairs(["reset forgotten password"], CORPUS)).distance
    assert distance.argmax() == 2
    assert (distance.mean(), distance.std()) == pytest.approx((0, 1), abs=1e-9)


def test_chance_is_the_mean_and_the_deviation_over_all_chunks() -> None:
    vectors = JUDGE_MEANING.vectors.astype(np.float64)
    queries = JUDGE_MEANING.vectors[[0, 3, 7]]
    mean, deviation = JUDGE_MEANING.chance(queries)
    found = queries.astype(np.float64) @ vectors.T
    np.testing.assert_allclose(mean, found.mean(axis=1))
    np.testing.assert_allclose(deviation, found.std(axis=1), rtol=1e-9)


def test_words_close_together_count_more_than_words_far_apart() -> None:
    near = "snapshot restore " + "filler " * 40
    far = "snapshot " + "filler " * 40 + " restore"
    judge = fitted([*CORPUS, near, far])
    window = judge.features(pairs(["restore snapshot"], [near, far])).window
    assert window[0] == 1
    assert 0 < window[1] < 1


@pytest.mark.parametrize("corpus", [[""], ["the of"], ["one"], ["same text", "same text"], []])
def test_a_corpus_with_next_to_nothing_in_it_is_judged_without_a_warning(corpus: list[str]) -> None:
    said = judged(fitted(corpus), pairs(["one text", ""], ["one", "", "same text"]))
    assert all(0 <= value <= 1 for value in said["probability"].to_pylist())


def test_no_pairs_get_no_replies() -> None:
    assert judged(JUDGE, PAIRS.empty_table()).equals(REPLIES.empty_table())


WORDS = [f"word{number}x" for number in range(8)]
SPACE = TermSpace([[" ".join(WORDS), WORDS[0], f"{WORDS[0]} {WORDS[1]}"]])


def plain(query: set[int], text: list[int]) -> float:
    sums = [
        sum(SPACE.idf[column] for column in query & set(text[start : start + WINDOW_TERMS]))
        for start in range(len(text))
    ]
    return float(max(sums, default=0.0))


texts = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(st.lists(texts, min_size=1, max_size=4), st.lists(texts, min_size=1, max_size=3))
def test_the_best_window_is_that_of_a_loop_over_all(chunks: list[str], queries: list[str]) -> None:
    weights = SPACE.count(queries)
    weights.data = SPACE.idf[weights.indices].astype(np.float64)
    chunk, query = (part.ravel() for part in np.indices((len(chunks), len(queries))))
    found = best_window(SPACE.sequences(chunks), weights, chunk, query)
    columns = [[SPACE.vocabulary[term] for term in SPACE.tokenize(text)] for text in chunks]
    asked = [{SPACE.vocabulary[term] for term in SPACE.tokenize(text)} for text in queries]
    np.testing.assert_allclose(found, [plain(asked[q], columns[c]) for c, q in zip(chunk, query, strict=True)])


def test_a_window_ends_after_its_last_term() -> None:
    weights = SPACE.count([f"{WORDS[0]} {WORDS[1]}"])
    weights.data = SPACE.idf[weights.indices].astype(np.float64)
    between = [WORDS[2]] * (WINDOW_TERMS - 2)
    inside = " ".join([WORDS[0], *between, WORDS[1]])
    outside = " ".join([WORDS[0], *between, WORDS[2], WORDS[1]])
    rows = np.arange(2)
    found = best_window(SPACE.sequences([inside, outside]), weights, rows, np.zeros(2, dtype=np.int64))
    np.testing.assert_allclose(found, [weights.data.sum(), weights.data.max()])


APART = SemanticSpace(TermSpace([["alpha beta", "gamma delta", ""]]))
FIRST, SECOND = APART.vectors[:1], APART.vectors[1:2]


def found(*rows: int) -> Hits:
    return Hits(np.array([rows], dtype=np.int64), np.ones((1, len(rows)), dtype=np.float32))


def test_chunks_without_a_common_word_or_neighbour_have_nothing_in_common() -> None:
    assert row_products(FIRST, SECOND)[0] == pytest.approx(0, abs=10)
    assert row_products(FIRST, FIRST)[0] == pytest.approx(4000**2, rel=1e-3)
    assert not APART.vectors[2].any()


@pytest.mark.parametrize("rows", [(1,), (1, 1, 1), (1, 1, -1, -1)])
def test_the_query_and_the_mean_of_its_finds_weigh_the_same(rows: tuple[int, ...]) -> None:
    moved = APART.with_feedback(FIRST, found(*rows))
    assert row_products(moved, FIRST)[0] == pytest.approx(row_products(moved, SECOND)[0], rel=1e-3)


def test_a_query_without_finds_stays_where_it_is() -> None:
    np.testing.assert_allclose(APART.with_feedback(FIRST, found(-1, -1)), FIRST, atol=1)


def test_the_best_product_is_that_of_the_nearest_chunk_and_never_below_zero() -> None:
    queries = np.concatenate([FIRST, -FIRST, 0 * FIRST])
    assert APART.best_similarity(queries).tolist() == [row_products(FIRST, FIRST)[0], 0, 0]
