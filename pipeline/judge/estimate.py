"""What judging a run will cost and how long it will take."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa


@dataclass(frozen=True)
class Estimate:
    """What the pairs of a run will take.

    Attributes:
        judge: its model.
        pairs: of the pool.
        to_ask: those without a verdict in the ledger, pairs of equal texts once; the sample is among them.
        sampled: calls made for the estimate.
        prompt_tokens, completion_tokens: for all to ask; null where the server does not count.
        cost: money, by the prices of the settings; null without prices or counts.
        seconds: at the pace of the sample, which is that of a start with few calls at once: an upper bound.
        seconds_at_most_in_flight: if the server bears `judge.max_in_flight` calls at once as well as those.
        relevant: share of the sample's labels; null where none could be read.
    """

    judge: str
    pairs: int
    to_ask: int
    sampled: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost: float | None
    seconds: float | None
    seconds_at_most_in_flight: float | None
    relevant: float | None

    def table(self) -> pa.Table:
        """One row per figure."""
        return pa.table({"estimate": self._names, "value": self._values})

    def table_at_adaptive_depth(self, recall: float, random_share: float) -> pa.Table:
        """One row per figure: at least, by `least_share`, and at most, if all has to be judged.

        Args:
            recall: share of the pool's positives to find.
            random_share: most of the pool that is judged at random.
        """
        least = self._times(least_share(self.pairs, self.relevant, recall, random_share))
        return pa.table({"estimate": self._names, "at least": least._values, "at most": self._values})

    @property
    def _names(self) -> list[str]:
        return [name.replace("_", " ") for name in self._figures]

    @property
    def _values(self) -> list[str]:
        return [_format_number(getattr(self, name)) for name in self._figures]

    @property
    def _figures(self) -> list[str]:
        return [name for name in self.__dataclass_fields__ if name != "judge"]

    def _times(self, share: float) -> Estimate:
        """For a share of the pairs to ask."""
        return replace(
            self,
            to_ask=round(self.to_ask * share),
            prompt_tokens=_to_int(_scale(self.prompt_tokens, share)),
            completion_tokens=_to_int(_scale(self.completion_tokens, share)),
            cost=_scale(self.cost, share),
            seconds=_scale(self.seconds, share),
            seconds_at_most_in_flight=_scale(self.seconds_at_most_in_flight, share),
        )


def least_share(pairs: int, relevant: float | None, recall: float, random_share: float) -> float:
    """Share of a pool that adaptive judging asks about at least, as far as a sample tells: by a learner without fault.

    It is the random slice, and outside of it as many pairs as hold the recall if each is relevant; 1 where the slice
    will hold too few positives for the stopping rule.

    Args:
        pairs: of the pool.
        relevant: share of the pool; null: unknown.
        recall: share of the pool's positives to find.
        random_share: most of the pool that is judged at random.
    """
    from darklode.pipeline.judge.adaptive.recall_estimate import POSITIVES, min_random_positives, recall_outside

    if not relevant or not pairs:
        return 1.0 if pairs else 0.0
    drawn = min(random_share, POSITIVES / (relevant * pairs))
    n_required = recall_outside(recall, drawn)
    if min_random_positives(round(drawn * pairs * relevant), n_required) is None:
        return 1.0
    return min(1.0, drawn + (1 - drawn) * relevant * max(0.0, n_required))


def _scale(figure: float | None, share: float) -> float | None:
    return None if figure is None else figure * share


def _to_int(figure: float | None) -> int | None:
    return None if figure is None else round(figure)


def _format_number(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
