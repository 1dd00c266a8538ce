"""Estimate the cost and time of judging a run from a sample of calls, whose verdicts are kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.judge.estimate import Estimate
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm.batch_files import iterate_unjudged
from darklode.pipeline.judge.llm.judge import LlmJudge
from darklode.pipeline.judge.llm.settings import LlmSettings

SAMPLE = 50
"""Calls made for an estimate."""


def estimate(tables: Tables, source: LlmJudge, ledger: Ledger, settings: LlmSettings, *, seed: int) -> Estimate:
    """Judge a random sample of the pairs without a verdict, and extrapolate.

    Args:
        tables: `queries`, `chunks` and `pool`.
        source: the language model.
        ledger: existing verdicts; gets those of the sample.
        settings: prices and concurrency.
        seed: of the sample.

    Raises:
        DarklodeError: the judge cannot continue.
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
    """A uniform sample of at most `n` rows, in row order, and the total number of rows.

    Reservoir sampling with random keys: the `n` rows with the smallest keys are kept; memory is one block plus the
    sample.
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


def _cost(tokens: list[int | None], prices: LlmSettings) -> float | None:
    each = (prices.prompt_price_per_million, prices.completion_price_per_million)
    token_counts = [count for count in tokens if count is not None]
    if len(token_counts) < len(tokens) or not any(each):
        return None
    return sum(count * price for count, price in zip(token_counts, each, strict=True)) / 1e6
