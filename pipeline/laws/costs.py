"""Measured costs of labels: judge calls and tokens by pool depth, reviewers' minutes, and encoder speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.bootstrap import interval
from darklode.pipeline.base.types import Doubles, Row
from darklode.pipeline.validate.review.journal import AnswerJournal
from darklode.schemas.law_tables import DEPTH_COSTS, LAW_COSTS

RESAMPLES = 1000

MAX_PAUSE = 300.0
"""Pauses between two answers that are longer than this (seconds) are not counted as work."""

JUDGED = ("pool", "verdicts", "rankings", "qrels", "queries")

TOKENS = """
    SELECT count(*) AS calls, count(DISTINCT (tenant, query_id)) AS queries, count(*) FILTER (relevant) AS positives,
           count(prompt_tokens) AS counted, CAST(sum(prompt_tokens) AS DOUBLE) AS prompt_tokens,
           CAST(sum(completion_tokens) AS DOUBLE) AS completion_tokens
    FROM verdicts
"""

# Band b holds the best ranks above 2^(b-1), up to 2^b.
DEPTHS = """
    SELECT dense_rank() OVER (ORDER BY tenant, query_id) - 1 AS query,
           CAST(ceil(log2(best_rank) - 1e-9) AS INTEGER) AS band, count(*) AS calls,
           count(*) FILTER (relevant) AS positives, max(best_rank) AS deepest
    FROM verdicts JOIN pool USING (tenant, query_id, chunk_id)
    GROUP BY tenant, query_id, band ORDER BY query, band
"""

BELOW = """
    SELECT count(*) AS calls, max(rank) AS deepest FROM (
        SELECT tenant, query_id, chunk_id, min(rank) AS rank FROM rankings
        WHERE rank <= 2 * CAST(? AS INTEGER) GROUP BY ALL
    ) ANTI JOIN pool USING (tenant, query_id, chunk_id)
"""


@dataclass(frozen=True)
class JudgedRun:
    """A build with recorded judging costs.

    Attributes:
        run: its folder.
        prices: per million prompt tokens and per million completion tokens.
    """

    run: Run
    prices: tuple[float, float]


@dataclass(frozen=True)
class ModelCost:
    """Measured cost of a grid's encoder.

    Attributes:
        name: as configured.
        parameters: without embeddings.
        texts: texts of the corpus.
        texts_per_second: measured encoding speed.
        seconds: training time at the largest size.
    """

    name: str
    parameters: float
    texts: int
    texts_per_second: float
    seconds: float

    @property
    def hours(self) -> float:
        """Hours to train once and to encode the corpus."""
        return (self.seconds + self.texts / self.texts_per_second) / 3600


@dataclass(frozen=True)
class MeasuredCosts:
    """Known costs.

    Attributes:
        costs: rows of `law_costs`.
        depths: rows of `depth_costs`.
        per_query: the judge's price of a labelled query; None if unknown.
        per_call: the judge's price of a call.
        minutes: reviewer minutes per labelled query; None without reviews.
        models: encoders of the grid, by parameters.
    """

    costs: list[Row] = field(default_factory=list)
    depths: list[Row] = field(default_factory=list)
    per_query: float | None = None
    per_call: float | None = None
    minutes: float | None = None
    models: tuple[ModelCost, ...] = ()

    def tables(self) -> tuple[pa.Table, pa.Table]:
        costs = pa.Table.from_pylist(self.costs, schema=LAW_COSTS.schema)
        return costs, pa.Table.from_pylist(self.depths, schema=DEPTH_COSTS.schema)


def measured_costs(judged: Sequence[JudgedRun], models: Sequence[ModelCost], seed: int) -> MeasuredCosts:
    """Collect the measured costs of builds and of a grid's encoders (either may be empty); `seed` is for resampling."""
    rows = [row for model in models for row in _model_rows(model)]
    totals = [model.run.tables("verdicts").sql(TOKENS).to_pylist()[0] for model in judged]
    queries, calls = (sum(row[name] for row in totals) for name in ("queries", "calls"))
    if not queries:
        return MeasuredCosts(rows, models=tuple(models))
    per_query = _price(judged, totals, queries)
    minutes, of_people = _minutes(judged, calls / queries, seed)
    depth_rows, bands = _depths(judged, seed)
    rows = [*_calls(totals, depth_rows, seed), *_price_rows(per_query), *of_people, *rows]
    per_call = None if per_query is None else per_query * queries / calls
    return MeasuredCosts(rows, bands, per_query, per_call, minutes, tuple(models))


def _cost(item: str, value: float, basis: str, ends: tuple[float, float] | None = None) -> Row:
    low, high = ends or (None, None)
    return {"item": item, "value": float(value), "low": low, "high": high, "basis": basis}


def _price(judged: Sequence[JudgedRun], totals: Sequence[Row], queries: int) -> float | None:
    """Price of a labelled query; None unless tokens and prices of all builds are known."""
    if not all(any(judged_run.prices) and row["counted"] for judged_run, row in zip(judged, totals, strict=True)):
        return None
    spent = [
        (row["prompt_tokens"] * judged_run.prices[0] + (row["completion_tokens"] or 0) * judged_run.prices[1]) / 1e6
        for judged_run, row in zip(judged, totals, strict=True)
    ]
    return float(sum(spent) / queries)


def _price_rows(per_query: float | None) -> list[Row]:
    basis = "the verdicts' tokens at the judge's prices"
    return [] if per_query is None else [_cost("price of a labelled query by the judge", per_query, basis)]


def _calls(totals: Sequence[Row], by_query: Doubles, seed: int) -> list[Row]:
    """Calls per query and per positive."""
    queries, calls, positives = (sum(row[name] for row in totals) for name in ("queries", "calls", "positives"))
    rows = [_cost("calls for a query", calls / queries, f"{calls:,} verdicts on {queries:,} queries")]
    if positives:
        sums = np.column_stack([by_query[..., 0].sum(axis=1), by_query[..., 1].sum(axis=1)])
        low, high = interval(sums, lambda sample: sample[..., 0] / sample[..., 1], RESAMPLES, seed)
        ends = (float(low), float(high))
        rows.append(_cost("calls for a positive", calls / positives, f"{positives:,} of them relevant", ends))
    return rows


def _minutes(judged: Sequence[JudgedRun], pairs: float, seed: int) -> tuple[float | None, list[Row]]:
    """Reviewer minutes per labelled query: mean time between two answers times the pairs per query."""
    gaps = np.concatenate([_gaps(judged_run.run) for judged_run in judged])
    if len(gaps) < 2:
        return None, []
    sums = np.column_stack([gaps, np.ones(len(gaps))])
    low, high = interval(sums, lambda judged_run: judged_run[..., 0] / judged_run[..., 1] / 60, RESAMPLES, seed)
    each, basis = (
        float(gaps.mean() / 60),
        f"{len(gaps):,} answers of the review, pauses above {MAX_PAUSE / 60:g} minutes left out",
    )
    rows = [_cost("a person's minutes for a pair", each, basis, (float(low), float(high)))]
    return each * pairs, [*rows, _cost("a person's minutes for a query", each * pairs, f"{pairs:.1f} pairs each")]


def _gaps(run: Run) -> Doubles:
    """Seconds between a reviewer's consecutive answers."""
    answers = [answer for answer in AnswerJournal(run.store).read() if not answer.undone]
    reviewers = np.array([answer.reviewer for answer in answers], dtype=object)
    when = np.array([answer.answered_at.timestamp() for answer in answers])
    order = np.lexsort((when, reviewers.astype(str)))
    seconds, same = np.diff(when[order]), reviewers[order][1:] == reviewers[order][:-1]
    return np.asarray(seconds[same & (seconds <= MAX_PAUSE)])


def _depths(judged: Sequence[JudgedRun], seed: int) -> tuple[Doubles, list[Row]]:
    """Calls and positives per query and depth band, shape (n_queries, n_bands, 2), and rows of `depth_costs`."""
    tables = [judged_run.run.tables("verdicts", "pool").sql(DEPTHS) for judged_run in judged]
    counts = [
        _count_matrix(table, max(int(judged_run["band"].to_numpy().max()) for judged_run in tables) + 1)
        for table in tables
    ]
    by_query, deepest = (
        np.concatenate(counts),
        max(int(judged_run["deepest"].to_numpy().max()) for judged_run in tables),
    )
    total = by_query.sum(axis=0)

    def rate(sums: Doubles) -> Doubles:
        with np.errstate(invalid="ignore"):
            return np.asarray(sums[..., 1::2] / sums[..., ::2])

    low, high = interval(by_query.reshape(len(by_query), -1), rate, RESAMPLES, seed)
    rows = []
    for band, (calls, positives) in enumerate(total.astype(int).tolist()):
        if calls:
            ranks = {"from_rank": 2 ** (band - 1) + 1 if band else 1, "to_rank": min(2**band, deepest)}
            ends = {"low": _inverse(high[band]), "high": _inverse(low[band])}
            each = {"calls_per_positive": calls / positives if positives else None}
            rows.append(ranks | {"judged": True, "calls": calls, "positives": positives} | each | ends)
    return by_query, [*rows, *_deeper_rows(judged, deepest, rows[-1])]


def _count_matrix(table: pa.Table, bands: int) -> Doubles:
    query, band = table["query"].to_numpy(), table["band"].to_numpy()
    out = np.zeros((int(query.max()) + 1, bands, 2))
    out[query, band, 0], out[query, band, 1] = table["calls"].to_numpy(), table["positives"].to_numpy()
    return out


def _deeper_rows(judged: Sequence[JudgedRun], deepest: int, last: Row) -> list[Row]:
    """What one more doubling of the depth would add: its calls, and a lower bound of the calls per positive."""
    rows = [judged_run.run.tables("rankings", "pool").sql(BELOW, [deepest]).to_pylist()[0] for judged_run in judged]
    calls = sum(row["calls"] for row in rows)
    if not calls:
        return []
    ranks = {"from_rank": deepest + 1, "to_rank": max(row["deepest"] for row in rows if row["calls"])}
    each = {name: last[name] for name in ("calls_per_positive", "low", "high")}
    return [ranks | {"judged": False, "calls": calls, "positives": None} | each]


def _inverse(rate: float) -> float | None:
    return float(1 / rate) if rate > 0 else None


def _model_rows(model: ModelCost) -> list[Row]:
    rate, hours = f"texts a second of {model.name}", f"hours of {model.name}"
    basis = f"training once and encoding {model.texts:,} texts"
    return [_cost(rate, model.texts_per_second, "measured by the grid"), _cost(hours, model.hours, basis)]
