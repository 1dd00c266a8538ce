"""What a reranker may be trained on."""

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.reranker.pairs import SoftPairs


def pairs(target: list[float], weight: list[float]) -> SoftPairs:
    n = len(target)
    return SoftPairs(
        ["a", "b"],
        pa.array(["x", "y"]),
        np.arange(n) % 2,
        np.arange(n)[::-1] % 2,
        np.array(target, np.float32),
        np.array(weight, np.float32),
    )


def test_rows_name_query_and_text() -> None:
    made = pairs([0.2, 1.0, 0.0], [1.0, 0.5, 2.0])
    assert len(made) == 3
    rows = np.array([2, 1])
    assert (made.queries_at(rows), made.texts_at(rows)) == (["a", "b"], ["x", "y"])


@pytest.mark.parametrize(
    ("target", "weight", "message"),
    [
        ([], [], "no pairs"),
        ([1.2], [1.0], "not a probability"),
        ([float("nan")], [1.0], "not a probability"),
        ([1.0], [0.0], "weight is not above 0"),
    ],
)
def test_what_is_out_of_bounds_is_refused(target: list[float], weight: list[float], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        pairs(target, weight)
