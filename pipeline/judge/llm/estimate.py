"""Estimate the cost and time of judging a run from a sample of calls, whose verdicts are kept."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.judge.estimate import Estimate
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm.batch_files import iterate_unjudged
from darklode.pipeline.judge.llm.judge import LlmJudge
from darklode.pipeline.judge.llm.settings import LlmSettings

SAMPLE_PAIRS = 50
"""Number of pairs judged for an estimate; more make it more precise, and cost more."""


def estimate(tables: Tables, source: LlmJudge, ledger: Ledger, settings: LlmSettings, *, seed: int) -> Estimate:
    """Judge a random sample of the pairs without a verdict, and extrapolate.

    Args:
        tables: must contain `queries`, `chunks` and `pool`.
        source: the judge.
        ledger: holds the existing verdicts, and receives those of the sample.
        settings: settings of the judge, for its prices and concurrency.
        seed: random seed of the sample.

    Raises:
        DarklodeError: the judge cannot continue.
    """
    sample, n_unjudged = draw(
        iterate_unjudged(tables, ledger, source.judge_id, source.previous_version), SAMPLE_PAIRS, seed
    )
    start_time = time.perf_counter()
    replies = None
    if sample.num_rows:
        with Background() as background:  # not asyncio.run: a notebook has a running event loop
            replies = background.run(LedgerJudge(source, ledger, settings.max_attempts).judge(sample), lambda: None)
    seconds = time.perf_counter() - start_time
    if replies is None:
        return Estimate(settings.model, tables.rows("pool"), 0, 0, 0, 0, 0.0, 0.0, 0.0, None)
    scale = n_unjudged / sample.num_rows
    prompt, completion = (_scale_tokens(replies[name], scale) for name in ("prompt_tokens", "completion_tokens"))
    concurrency = min(sample.num_rows, settings.max_concurrency)
    return Estimate(
        settings.model,
        tables.rows("pool"),
        n_unjudged,
        sample.num_rows,
        prompt,
        completion,
        _cost([prompt, completion], settings),
        seconds * scale,
        seconds * scale * concurrency / settings.max_concurrency,
        pc.mean(replies["relevant"].cast(pa.float64())).as_py(),
    )


def draw(blocks: Iterable[pa.Table], n: int, seed: int) -> tuple[pa.Table, int]:
    """Draw a uniform sample of at most `n` rows, in row order; also returns the total number of rows.

    Reservoir sampling with random keys: the `n` rows with the smallest keys are kept; memory is one block plus the
    sample.
    """
    random = np.random.default_rng(seed)
    count = 0
    sample = None
    sort_keys = np.empty(0)
    for rows in blocks:
        count += rows.num_rows
        sample = rows if sample is None else pa.concat_tables([sample, rows])
        sort_keys = np.concatenate([sort_keys, random.random(rows.num_rows)])
        chosen = np.sort(np.argsort(sort_keys, kind="stable")[:n])
        sample = sample.take(pa.array(chosen))
        sort_keys = sort_keys[chosen]
    return pa.table({}) if sample is None else sample, count


def _scale_tokens(tokens: pa.ChunkedArray, factor: float) -> int | None:
    """Extrapolate the sample's tokens to all pairs; None if the server reports no tokens."""
    mean = pc.mean(tokens).as_py()
    return None if mean is None else round(mean * len(tokens) * factor)


def _cost(tokens: list[int | None], prices: LlmSettings) -> float | None:
    """Compute the cost of prompt and completion tokens; None if tokens or prices are unknown."""
    token_prices = (prices.prompt_price_per_million, prices.completion_price_per_million)
    token_counts = [count for count in tokens if count is not None]
    if len(token_counts) < len(tokens) or not any(token_prices):
        return None
    return sum(count * price for count, price in zip(token_counts, token_prices, strict=True)) / 1e6
