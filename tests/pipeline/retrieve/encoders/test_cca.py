"""The parts of a chunk between which correlations are sought."""

from __future__ import annotations

import numpy as np

from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.retrieve.encoders.cca import split_counts

CHUNKS = ["car engine motor oil", "automobile engine motor wheel", "banana apple fruit salad"] * 12


def test_a_split_loses_and_invents_no_word() -> None:
    counts = TermSpace([CHUNKS]).counts
    first, second = split_counts(counts, 0.35, np.random.default_rng(0))
    assert ((first + second) != counts).nnz == 0
    assert 0.2 < first.sum() / counts.sum() < 0.5
    assert min(first.data) >= 1
