"""Apply a threshold to a judge's probabilities afterwards, so that changing it costs no call."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.judge.port import REPLIES, Judge, Live


class Thresholded(Judge):
    """A judge whose labels follow its probabilities; replies without a probability keep their label.

    Args:
        judge: gives the probabilities.
        threshold: minimum probability of a relevant pair.
    """

    def __init__(self, judge: Judge, threshold: float) -> None:
        self._judge, self._threshold = judge, threshold

    @property
    def judge_id(self) -> str:
        """The judge's id and the threshold."""
        return f"{self._judge.judge_id}:{self._threshold:g}"

    @property
    def facts(self) -> Mapping[str, int]:
        return self._judge.facts

    @property
    def live(self) -> Live | None:
        return self._judge.live

    async def judge(self, pairs: pa.Table) -> pa.Table:
        replies = await self._judge.judge(pairs)
        is_known = pc.and_(pc.is_valid(replies["relevant"]), pc.is_valid(replies["probability"]))
        likely = pc.greater_equal(replies["probability"], pa.scalar(self._threshold, pa.float32()))
        relevant = pc.if_else(is_known, likely, replies["relevant"])
        return replies.set_column(REPLIES.get_field_index("relevant"), REPLIES.field("relevant"), relevant)
