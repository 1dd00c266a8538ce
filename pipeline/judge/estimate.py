"""What judging a run will cost and how long it will take."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa


@dataclass(frozen=True)
class Estimate:
    """Estimated cost and time of judging a run's pool.

    Attributes:
        judge: name of the model.
        pairs: number of pairs in the pool.
        to_ask: pairs without a verdict in the ledger, equal texts once; includes the sample.
        sampled: calls made for the estimate.
        prompt_tokens, completion_tokens: for `to_ask` pairs; None if the server reports no usage.
        cost: by the prices in the settings; None without prices or usage.
        seconds: at the sample's throughput; an upper bound, since the sample has few concurrent calls.
        seconds_at_most_in_flight: if throughput scales up to `judge.max_concurrency` concurrent calls.
        relevant: share of relevant labels in the sample; None if no reply was readable.
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
        """One row per figure: a lower bound (`least_share`), and an upper bound (all pairs are judged).

        Args:
            recall: target share of the pool's positives.
            random_share: maximum share of the pool that is judged at random.
        """
        least = self.scaled(least_share(self.pairs, self.relevant, recall, random_share))
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

    def scaled(self, share: float) -> Estimate:
        """Scale to a share of the pairs."""
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
    """Minimum share of a pool that adaptive judging needs, assuming a perfect learner.

    It is the random sample, plus as many relevant pairs as the recall requires; 1 if the random sample will have too
    few positives for the stopping rule.

    Args:
        pairs: number of pairs in the pool.
        relevant: share of relevant pairs in the pool; None: unknown.
        recall: target share of the pool's positives.
        random_share: maximum share of the pool that is judged at random.
    """
    from darklode.pipeline.judge.adaptive.recall_estimate import SAMPLE_POSITIVES, min_random_positives, recall_outside

    if not relevant or not pairs:
        return 1.0 if pairs else 0.0
    drawn = min(random_share, SAMPLE_POSITIVES / (relevant * pairs))
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
