"""Positive pointwise mutual information against its definition."""

from __future__ import annotations

import numpy as np

from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.retrieve.encoders.ppmi import cooccurrence, positive_pmi


def test_positive_pmi_equals_its_definition() -> None:
    counts = TermSpace([["red blue", "red blue green", "green blue", "red"]]).counts
    present = (counts > 0).toarray().astype(float)
    meets = present.T @ (present / present.sum(axis=1, keepdims=True))
    np.fill_diagonal(meets, 0)
    contexts = meets.sum(axis=0) ** 0.75 / (meets.sum(axis=0) ** 0.75).sum()
    with np.errstate(divide="ignore"):
        expected = np.maximum(np.log(meets / (meets.sum(axis=1, keepdims=True) * contexts)), 0)
    np.testing.assert_allclose(positive_pmi(cooccurrence(counts)).toarray(), expected, rtol=1e-5)
