"""Comparison of recorded and current search results: shared by the checks of adapters and of indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from darklode.pipeline.base.models.precision import rounding
from darklode.pipeline.base.types import Facts

MIN_COSINE = 0.9999
"""Minimum cosine of a text's vector in the index with the vector the base computes now; half precision keeps more."""

SCORE_TOLERANCE = rounding("float32")
"""Maximum difference of a probe's score to the recorded one: sums differ between machines."""

ENCODER_FACTS = ("encoder", "pooling", "query prompt", "document prompt", "tokens", "cut", "precision", "weights")
"""Facts of an encoder that decide its vectors. The weights come last: their hash covers all files of the model, also
those that the other facts are read from."""


@dataclass(frozen=True)
class CheckFinding:
    """A checked subject, whether it matches, and the detail."""

    subject: str
    fits: bool
    detail: str


def returns_same(
    recorded: Sequence[Facts], results: Sequence[Facts], hashes: Mapping[str, str], tolerance: float = SCORE_TOLERANCE
) -> bool:
    """Whether results equal the recorded ones; texts with nearly equal scores may swap ranks.

    Args:
        recorded: text_id, hash and score, best first.
        results: text_id and score, best first.
        hashes: content hashes of the results if the index has changed since: only unchanged texts in both lists are
            compared, and there must be at least one. Empty: the whole lists are compared.
        tolerance: maximum difference of a score.
    """
    before = {hit["text_id"]: hit for hit in recorded}
    if not hashes:
        is_close = [
            abs(hit["score"] - other["score"]) <= tolerance for hit, other in zip(recorded, results, strict=False)
        ]
        edge = recorded[-1]["score"] if recorded else 0.0
        gone = before.keys() - {hit["text_id"] for hit in results}
        return (
            len(recorded) == len(results)
            and all(is_close)
            and all(abs(before[hit]["score"] - edge) <= tolerance for hit in gone)
        )
    unchanged = [hit for hit in results if hashes[hit["text_id"]] == before.get(hit["text_id"], {}).get("hash")]
    return bool(unchanged) and all(
        abs(hit["score"] - before[hit["text_id"]]["score"]) <= tolerance for hit in unchanged
    )
