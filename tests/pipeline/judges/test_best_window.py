"""The vectorised window against a plain loop."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.judges.overlap import WINDOW, Tokens, best_window
from pipeline.terms import TermSpace

WORDS = [f"word{number}x" for number in range(8)]
SPACE = TermSpace([[" ".join(WORDS), WORDS[0], f"{WORDS[0]} {WORDS[1]}"]])


def plain(query: set[int], text: list[int]) -> float:
    sums = [
        sum(SPACE.idf[column] for column in query & set(text[start : start + WINDOW])) for start in range(len(text))
    ]
    return float(max(sums, default=0.0))


texts = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(st.lists(texts, min_size=1, max_size=4), st.lists(texts, min_size=1, max_size=3))
def test_it_finds_what_a_loop_over_all_windows_finds(chunks: list[str], queries: list[str]) -> None:
    weights = SPACE.count(queries)
    weights.data = SPACE.idf[weights.indices].astype(np.float64)
    chunk, query = (part.ravel() for part in np.indices((len(chunks), len(queries))))
    found = best_window(Tokens.of(SPACE, chunks), weights, chunk, query)
    columns = [[SPACE.vocabulary[term] for term in SPACE.tokenize(text)] for text in chunks]
    asked = [{SPACE.vocabulary[term] for term in SPACE.tokenize(text)} for text in queries]
    np.testing.assert_allclose(found, [plain(asked[q], columns[c]) for c, q in zip(chunk, query, strict=True)])


def test_a_window_ends_after_its_last_term() -> None:
    weights = SPACE.count([f"{WORDS[0]} {WORDS[1]}"])
    weights.data = SPACE.idf[weights.indices].astype(np.float64)
    between = [WORDS[2]] * (WINDOW - 2)
    inside = " ".join([WORDS[0], *between, WORDS[1]])
    outside = " ".join([WORDS[0], *between, WORDS[2], WORDS[1]])
    rows = np.arange(2)
    found = best_window(Tokens.of(SPACE, [inside, outside]), weights, rows, np.zeros(2, dtype=np.int64))
    np.testing.assert_allclose(found, [weights.data.sum(), weights.data.max()])
