"""Judges that score query and chunk together, in batches on this machine: what all cross-encoders share."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.judge.port import ReplyBatch, StreamingJudge, replies_of

BATCHES_AT_ONCE = 8
"""Batches per device in a `ReplyBatch`."""

_DECIMALS = 4
"""Decimals of scores that do not depend on the other pairs of a batch."""


class PairScoringJudge(StreamingJudge):
    """A judge whose model gives each pair an (uncalibrated) probability of relevance.

    A chunk is its title, heading and text.

    Args:
        threshold: minimum probability of a relevant label.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    async def stream(self, pairs: pa.Table) -> AsyncIterator[ReplyBatch]:
        """Score pairs, longest first, so that the pairs of a batch have similar lengths.

        Raises:
            MissingPart: a package, the model or the GPU is missing, or the model needs custom code.
            SettingsError: the model does not fit the settings, or has not exactly one output.
        """
        chunks = view(pairs)
        lengths = pc.add(pc.binary_length(pairs["query"]), pc.binary_length(chunks)).to_numpy()
        order = np.argsort(-lengths, kind="stable")
        step = BATCHES_AT_ONCE * self._pairs_per_pass
        for start in range(0, len(order), step):
            rows = order[start : start + step]
            texts = [pairs["query"].take(rows).to_pylist(), chunks.take(rows).to_pylist()]
            scores = await asyncio.to_thread(self._score, list(zip(*texts, strict=True)))
            yield ReplyBatch(rows, self._replies(scores.round(_DECIMALS)))

    @property
    @abstractmethod
    def _pairs_per_pass(self) -> int:
        """Pairs in a forward pass on all devices."""

    @abstractmethod
    def _score(self, texts: list[tuple[str, str]]) -> NDArray[np.float64]:
        """Probability of each pair of query and chunk, shape (len(texts),)."""

    def _replies(self, scores: NDArray[np.float64]) -> pa.Table:
        probability = pa.array(scores, mask=~np.isfinite(scores))
        columns = {
            "relevant": pc.greater_equal(probability, self._threshold),
            "probability": probability.cast(pa.float32()),
            "error": pc.if_else(pc.is_null(probability), "the model's score is not a number", None).cast(pa.string()),
        }
        return replies_of(columns, len(scores))
