"""What judging a run will take, from a sample of calls whose verdicts are kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.judge.kinds.llm import LlmSettings
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm.batch import unjudged
from darklode.pipeline.judge.llm.judge import LlmJudge

SAMPLE = 50


@dataclass(frozen=True)
class Estimate:
    """What the pairs of a run will take.

    Attributes:
        pairs: of the pool.
        to_ask: those without a verdict in the ledger, pairs of equal texts once; the sample is among them.
        sampled: calls made for the estimate.
        prompt_tokens, completion_tokens: for all to ask; null where the server does not count.
        cost: money, by the prices of the settings; null without prices or counts.
        seconds: at the pace of the sample, which is that of a start with few calls at once: an upper bound.
        seconds_at_most_in_flight: if the server bears `judge.max_in_flight` calls at once as well as those.
    """

    pairs: int
    to_ask: int
    sampled: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost: float | None
    seconds: float | None
    seconds_at_most_in_flight: float | None

    def table(self) -> pa.Table:
        """One row per figure."""
        names = [name.replace("_", " ") for name in self.__dataclass_fields__]
        values = [_shown(getattr(self, name)) for name in self.__dataclass_fields__]
        return pa.table({"estimate": names, "value": values})


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
    sample, to_ask = draw(unjudged(tables, ledger, source.judge_id, source.earlier), SAMPLE, seed)
    began = time.perf_counter()
    replies = asyncio.run(LedgerJudge(source, ledger, settings.attempts).judge(sample)) if sample.num_rows else None
    seconds = time.perf_counter() - began
    if replies is None:
        return Estimate(tables.rows("pool"), 0, 0, 0, 0, 0.0, 0.0, 0.0)
    factor = to_ask / sample.num_rows
    prompt, completion = (_scaled(replies[name], factor) for name in ("prompt_tokens", "completion_tokens"))
    at_once = min(sample.num_rows, settings.max_in_flight)
    return Estimate(
        tables.rows("pool"),
        to_ask,
        sample.num_rows,
        prompt,
        completion,
        _cost([prompt, completion], settings),
        seconds * factor,
        seconds * factor * at_once / settings.max_in_flight,
    )


def draw(blocks: Iterable[pa.Table], n: int, seed: int) -> tuple[pa.Table, int]:
    """A uniform sample of at most `n` rows, in the order of the rows, and how many rows there are.

    Every row gets a random number, and the `n` smallest stay: one pass, and no more in memory than a block.
    """
    random, count = np.random.default_rng(seed), 0
    kept, numbers = None, np.empty(0)
    for rows in blocks:
        count += rows.num_rows
        kept = rows if kept is None else pa.concat_tables([kept, rows])
        numbers = np.concatenate([numbers, random.random(rows.num_rows)])
        chosen = np.sort(np.argsort(numbers, kind="stable")[:n])
        kept, numbers = kept.take(pa.array(chosen)), numbers[chosen]
    return pa.table({}) if kept is None else kept, count


def _scaled(tokens: pa.ChunkedArray, factor: float) -> int | None:
    mean = pc.mean(tokens).as_py()
    return None if mean is None else round(mean * len(tokens) * factor)


def _cost(tokens: list[int | None], prices: LlmSettings) -> float | None:
    each = (prices.prompt_price_per_million, prices.completion_price_per_million)
    known = [count for count in tokens if count is not None]
    if len(known) < len(tokens) or not any(each):
        return None
    return sum(count * price for count, price in zip(known, each, strict=True)) / 1e6


def _shown(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
