"""The analyzer and the term counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.terms import TermSpace, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Index.max_result_window=10", ["index", "max", "result", "window", "10"]),
        ("Überprüfung der CAFÉ", ["überprüfung", "der", "café"]),
        ("ﬁle ＡＢＣ", ["file", "abc"]),
        ("東京都", ["東京", "京都"]),
        ("本", ["本"]),
        ("検索API設定", ["検索", "api", "設定"]),
        ("ค้นหา", ["ค้", "้น", "นห", "หา"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("검색 엔진", ["검색", "엔진"]),
        ("", []),
        ("... --- !!!", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read(text: str) -> None:
    space = TermSpace([[text]])
    assert space.counts.shape == (1, len(space.vocabulary))
    assert space.counts.sum() == len(space.tokenize(text))


def test_counts_do_not_depend_on_the_batches() -> None:
    chunks = ["heated wings heat", "", "the wing", "a flutter of wings"]
    whole, parts = TermSpace([chunks]), TermSpace([chunks[:1], [], chunks[1:]])
    assert whole.vocabulary == parts.vocabulary == {"heat": 0, "wing": 1, "flutter": 2}
    assert whole.counts.toarray().tolist() == parts.counts.toarray().tolist()
    assert whole.counts.toarray().tolist() == [[2, 1, 0], [0, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert whole.document_frequency.tolist() == [1, 3, 1]
    assert whole.fingerprint == parts.fingerprint
    assert whole.fingerprint != TermSpace([chunks[::-1]]).fingerprint


def test_queries_know_the_corpus_only() -> None:
    space = TermSpace([["heated wing"]])
    assert space.count(["wings, wings and nozzles", ""]).toarray().tolist() == [[0, 2], [0, 0]]
    assert space.count([]).shape == (0, 2)
    assert list(space.vocabulary) == ["heat", "wing"]


def test_idf_falls_with_frequency_and_stays_positive() -> None:
    idf = TermSpace([["wing heat", "wing", "wing"]]).idf
    assert 0 < idf[0] < idf[1]


def test_a_sample_is_bounded_and_always_the_same() -> None:
    space = TermSpace([[f"word{i}" for i in range(50)]])
    assert space.sample(20).shape == (20, 50)
    assert (space.sample(20) != space.sample(20)).nnz == 0
    assert space.sample(50).shape[0] == 50


def test_frequent_terms_are_the_most_frequent_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darklode.pipeline.base.terms._MAX_FREQUENT", 2)
    space = TermSpace([["heat wing", "flutter wing", "nozzle flutter"]])
    assert space.frequent_terms == ["wing", "flutter"]
    assert space.only_frequent(space.counts).toarray().tolist() == [[1, 0], [1, 1], [0, 1]]


def test_an_empty_corpus_has_no_terms() -> None:
    space = TermSpace([])
    assert space.n_chunks == 0
    assert space.idf.dtype == np.float32
