"""Batches and unit vectors of local encoders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.retrieve.encoders import local_encoder
from darklode.pipeline.retrieve.encoders.local_encoder import LocalEncoder, unit_vectors


class LengthEncoder(LocalEncoder):
    """The length of each text, negative for queries; records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], Sequence[str] | None]] = []

    @property
    def _texts_per_pass(self) -> int:
        return 2

    def _encode(self, texts: Sequence[str], *, queries: bool, ids: Sequence[str] | None = None) -> NDArray[np.float32]:
        self.calls.append((list(texts), ids))
        return np.array([[-len(text) if queries else len(text)] for text in texts], np.float32)


def test_batches_are_of_similar_length_and_keep_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_encoder, "_FORWARD_PASSES", 1)
    encoder = LengthEncoder()
    batches = list(encoder.encode_batches(["ccc", "a", "dddd", "bb", ""], ids=["3", "1", "4", "2", "0"]))
    assert encoder.calls == [(["", "a"], ["0", "1"]), (["bb", "ccc"], ["2", "3"]), (["dddd"], ["4"])]
    assert [(places.tolist(), vectors[:, 0].tolist()) for places, vectors in batches] == [
        ([4, 1], [0, 1]),
        ([3, 0], [2, 3]),
        ([2], [4]),
    ]


def test_queries_are_encoded_as_queries() -> None:
    encoder = LengthEncoder()
    assert encoder.encode_queries(["bb"]).tolist() == [[-2]]
    assert encoder.encode_documents(["bb"]).tolist() == [[2]]
    assert [vectors.tolist() for _, vectors in encoder.encode_batches(["bb"], queries=True)] == [[[-2]]]


def test_vectors_get_length_one_and_zeros_stay() -> None:
    vectors = unit_vectors(np.array([[3, 4], [0, 0]], np.float32), ["a", "b"], None, model="m", advice="")
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, [[0.6, 0.8], [0, 0]])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_vector_is_an_error_with_its_text(value: float) -> None:
    rows = np.array([[1, 0], [value, 0]], np.float32)
    with pytest.raises(DarklodeError, match=r"^m gave .* for 'second' \(content hash h2\): do this"):
        unit_vectors(rows, ["first", "second"], ["h1", "h2"], model="m", advice="do this")
