"""What judging a run will take, from a sample of calls whose verdicts are kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.judge.kinds.llm import LlmSettings
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm.batch_files import iterate_unjudged
from darklode.pipeline.judge.llm.judge import LlmJudge

SAMPLE = 50


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
        seconds_at_most_in_flight: if the server bears `judge.max_concurrency` calls at once as well as those.
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


def estimate(tables: Tables, source: LlmJudge, ledger: Ledger, settings: LlmSettings, *, seed: int) -> Estimate:
    """Ask for a random sample of the pairs that lack a verdict, and scale up what it took.

    Args:
        tables: holds `queries`, `chunks` and `pool`.
        source: the language model.
        ledger: where its verdicts are, and the sample's will be.
        settings: prices and calls at once.
        seed: of the sample.

    Raises:
        DarklodeError: the judge cannot go on.
    """
    sample, to_ask = draw(iterate_unjudged(tables, ledger, source.judge_id, source.previous_version), SAMPLE, seed)
    began = time.perf_counter()
    replies = asyncio.run(LedgerJudge(source, ledger, settings.max_attempts).judge(sample)) if sample.num_rows else None
    seconds = time.perf_counter() - began
    if replies is None:
        return Estimate(settings.model, tables.rows("pool"), 0, 0, 0, 0, 0.0, 0.0, 0.0, None)
    factor = to_ask / sample.num_rows
    prompt, completion = (_scale_tokens(replies[name], factor) for name in ("prompt_tokens", "completion_tokens"))
    at_once = min(sample.num_rows, settings.max_concurrency)
    return Estimate(
        settings.model,
        tables.rows("pool"),
        to_ask,
        sample.num_rows,
        prompt,
        completion,
        _cost([prompt, completion], settings),
        seconds * factor,
        seconds * factor * at_once / settings.max_concurrency,
        pc.mean(replies["relevant"].cast(pa.float64())).as_py(),
    )


def draw(blocks: Iterable[pa.Table], n: int, seed: int) -> tuple[pa.Table, int]:
    """A uniform sample of at most `n` rows, in the order of the rows, and how many rows there are.

    Every row gets a random number, and the `n` smallest stay: one pass, and no more in memory than a block.
    """
    random, count = np.random.default_rng(seed), 0
    sample, numbers = None, np.empty(0)
    for rows in blocks:
        count += rows.num_rows
        sample = rows if sample is None else pa.concat_tables([sample, rows])
        numbers = np.concatenate([numbers, random.random(rows.num_rows)])
        chosen = np.sort(np.argsort(numbers, kind="stable")[:n])
        sample, numbers = sample.take(pa.array(chosen)), numbers[chosen]
    return pa.table({}) if sample is None else sample, count


def _scale_tokens(tokens: pa.ChunkedArray, factor: float) -> int | None:
    mean = pc.mean(tokens).as_py()
    return None if mean is None else round(mean * len(tokens) * factor)


def _scale(figure: float | None, share: float) -> float | None:
    return None if figure is None else figure * share


def _to_int(figure: float | None) -> int | None:
    return None if figure is None else round(figure)


def _cost(tokens: list[int | None], prices: LlmSettings) -> float | None:
    each = (prices.prompt_price_per_million, prices.completion_price_per_million)
    token_counts = [count for count in tokens if count is not None]
    if len(token_counts) < len(tokens) or not any(each):
        return None
    return sum(count * price for count, price in zip(token_counts, each, strict=True)) / 1e6


def _format_number(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
