"""Texts that BM25 is tried on."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

WORDS = ["wing", "shock", "heat", "panel", "flutter", "nozzle"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=12)
METHODS = ("lucene", "robertson", "atire", "bm25l", "bm25+")


def random_chunks(n: int) -> list[str]:
    """Chunks with words as unevenly spread as real ones."""
    random = np.random.default_rng(7)
    vocabulary = [f"word{number}" for number in range(1, 301)]
    return [" ".join(vocabulary[min(z, 300) - 1] for z in random.zipf(1.3, random.integers(1, 60))) for _ in range(n)]
