"""Measured costs of labels: judge calls and tokens by pool depth, reviewers' minutes, and encoder speed.

Costs are measured from *judged builds*: runs in which a judge gave a verdict on each pooled (query, chunk) pair. A
*labelled query* is a query with such verdicts; a *positive* is a pair that the judge found relevant.
"""

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
"""Number of bootstrap resamples per interval."""

MAX_PAUSE = 300.0
"""Longest time between two answers, in seconds, that counts as work; a longer pause is a break and is left out."""

# Totals of one build. `counted` is the number of verdicts with recorded tokens; 0 means that the judge reports none.
VERDICT_TOTALS_SQL = """
    SELECT count(*) AS calls, count(DISTINCT (tenant, query_id)) AS queries, count(*) FILTER (relevant) AS positives,
           count(prompt_tokens) AS counted, CAST(sum(prompt_tokens) AS DOUBLE) AS prompt_tokens,
           CAST(sum(completion_tokens) AS DOUBLE) AS completion_tokens
    FROM verdicts
"""

# Calls and positives of each query by depth band: band b holds the chunks whose best rank over all retrievers is above
# 2^(b-1) and at most 2^b. Subtracting 1e-9 keeps a rank of exactly 2^b in band b, whatever log2 rounds to.
DEPTH_BANDS_SQL = """
    SELECT dense_rank() OVER (ORDER BY tenant, query_id) - 1 AS query,
           CAST(ceil(log2(best_rank) - 1e-9) AS INTEGER) AS band, count(*) AS calls,
           count(*) FILTER (relevant) AS positives, max(best_rank) AS deepest
    FROM verdicts JOIN pool USING (tenant, query_id, chunk_id)
    GROUP BY tenant, query_id, band ORDER BY query, band
"""

# Pairs that doubling the judged depth (the parameter) would add: ranked within it by any retriever, but not yet pooled.
UNJUDGED_DEPTH_SQL = """
    SELECT count(*) AS calls, max(rank) AS deepest FROM (
        SELECT tenant, query_id, chunk_id, min(rank) AS rank FROM rankings
        WHERE rank <= 2 * CAST(? AS INTEGER) GROUP BY ALL
    ) ANTI JOIN pool USING (tenant, query_id, chunk_id)
"""


@dataclass(frozen=True)
class JudgedRun:
    """A build whose judge calls are recorded.

    Attributes:
        run: the run folder of the build.
        prices: the judge's price of a million prompt tokens and of a million completion tokens; both 0 if unknown.
    """

    run: Run
    prices: tuple[float, float]


@dataclass(frozen=True)
class ModelCost:
    """Measured cost of training one encoder of a grid and encoding the corpus with it.

    Attributes:
        name: the encoder's configured name.
        parameters: number of parameters without the embedding matrix.
        texts: number of texts in the corpus.
        texts_per_second: measured encoding speed.
        seconds: training time of the grid point with the most labelled queries.
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
    """All costs that could be measured; what could not is None or empty.

    Attributes:
        costs: rows of `law_costs`, one per measured figure.
        depths: rows of `depth_costs`, from the best ranks to the deepest: judged bands, then what lies below them.
        per_query: the judge's price of a labelled query; None if its tokens or prices are unknown.
        per_call: the judge's price of one call; None if `per_query` is.
        minutes: reviewer minutes per labelled query; None without reviews.
        models: measured encoders of the grid.
    """

    costs: list[Row] = field(default_factory=list)
    depths: list[Row] = field(default_factory=list)
    per_query: float | None = None
    per_call: float | None = None
    minutes: float | None = None
    models: tuple[ModelCost, ...] = ()

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """The tables `law_costs` and `depth_costs`."""
        costs = pa.Table.from_pylist(self.costs, schema=LAW_COSTS.schema)
        return costs, pa.Table.from_pylist(self.depths, schema=DEPTH_COSTS.schema)


def measured_costs(judged: Sequence[JudgedRun], models: Sequence[ModelCost], seed: int) -> MeasuredCosts:
    """Collect the measured costs of judged builds and of a grid's encoders.

    Args:
        judged: the judged builds; may be empty.
        models: the encoders; may be empty.
        seed: seed of the bootstrap intervals.
    """
    model_rows = [row for model in models for row in _model_rows(model)]
    totals = [build.run.tables("verdicts").sql(VERDICT_TOTALS_SQL).to_pylist()[0] for build in judged]
    n_queries, n_calls = (sum(row[name] for row in totals) for name in ("queries", "calls"))
    if not n_queries:
        return MeasuredCosts(model_rows, models=tuple(models))
    price_per_query = _price_per_query(judged, totals, n_queries)
    minutes_per_query, reviewer_rows = _reviewer_minutes(judged, n_calls / n_queries, seed)
    band_counts, depth_rows = _depth_costs(judged, seed)
    call_rows = _call_rows(totals, band_counts, seed)
    cost_rows = [*call_rows, *_price_rows(price_per_query), *reviewer_rows, *model_rows]
    price_per_call = None if price_per_query is None else price_per_query * n_queries / n_calls
    return MeasuredCosts(cost_rows, depth_rows, price_per_query, price_per_call, minutes_per_query, tuple(models))


def _cost_row(item: str, value: float, basis: str, confidence_interval: tuple[float, float] | None = None) -> Row:
    """A row of `law_costs`; `basis` is a sentence fragment that says what the value was measured from."""
    low, high = confidence_interval or (None, None)
    return {"item": item, "value": float(value), "low": low, "high": high, "basis": basis}


def _price_per_query(judged: Sequence[JudgedRun], totals: Sequence[Row], queries: int) -> float | None:
    """The judge's price of a labelled query; None unless tokens and prices of all builds are known."""
    builds_with_totals = list(zip(judged, totals, strict=True))
    if not all(any(build.prices) and row["counted"] for build, row in builds_with_totals):
        return None
    money_spent = [
        (row["prompt_tokens"] * build.prices[0] + (row["completion_tokens"] or 0) * build.prices[1]) / 1e6
        for build, row in builds_with_totals
    ]
    return float(sum(money_spent) / queries)


def _price_rows(per_query: float | None) -> list[Row]:
    """The row of `law_costs` for the judge's price; no row if the price is unknown."""
    basis = "the verdicts' tokens at the judge's prices"
    return [] if per_query is None else [_cost_row("price of a labelled query by the judge", per_query, basis)]


def _call_rows(totals: Sequence[Row], band_counts: Doubles, seed: int) -> list[Row]:
    """Rows of `law_costs` for the judge calls per query and per positive.

    Args:
        totals: one row of `VERDICT_TOTALS_SQL` per build.
        band_counts: calls and positives per query and depth band, shape (n_queries, n_bands, 2).
        seed: seed of the bootstrap interval.
    """
    n_queries, n_calls, n_positives = (sum(row[name] for row in totals) for name in ("queries", "calls", "positives"))
    rows = [_cost_row("calls for a query", n_calls / n_queries, f"{n_calls:,} verdicts on {n_queries:,} queries")]
    if n_positives:
        calls_and_positives = np.column_stack([band_counts[..., 0].sum(axis=1), band_counts[..., 1].sum(axis=1)])
        low, high = interval(calls_and_positives, lambda sums: sums[..., 0] / sums[..., 1], RESAMPLES, seed)
        basis = f"{n_positives:,} of them relevant"
        rows.append(_cost_row("calls for a positive", n_calls / n_positives, basis, (float(low), float(high))))
    return rows


def _reviewer_minutes(judged: Sequence[JudgedRun], pairs_per_query: float, seed: int) -> tuple[float | None, list[Row]]:
    """Reviewer minutes per labelled query and the rows of `law_costs` about them; None and no rows without reviews.

    The estimate is the mean time between two answers times the number of pairs to answer per query.
    """
    gaps = np.concatenate([_seconds_between_answers(build.run) for build in judged])
    if len(gaps) < 2:
        return None, []
    seconds_and_count = np.column_stack([gaps, np.ones(len(gaps))])
    low, high = interval(seconds_and_count, lambda sums: sums[..., 0] / sums[..., 1] / 60, RESAMPLES, seed)
    minutes_per_pair = float(gaps.mean() / 60)
    minutes_per_query = minutes_per_pair * pairs_per_query
    basis = f"{len(gaps):,} answers of the review, pauses above {MAX_PAUSE / 60:g} minutes left out"
    return minutes_per_query, [
        _cost_row("a person's minutes for a pair", minutes_per_pair, basis, (float(low), float(high))),
        _cost_row("a person's minutes for a query", minutes_per_query, f"{pairs_per_query:.1f} pairs each"),
    ]


def _seconds_between_answers(run: Run) -> Doubles:
    """Seconds between consecutive answers of the same reviewer, without withdrawn answers and breaks."""
    answers = [answer for answer in AnswerJournal(run.store).read() if not answer.undone]
    reviewers = np.array([answer.reviewer for answer in answers], dtype=object)
    timestamps = np.array([answer.answered_at.timestamp() for answer in answers])
    order = np.lexsort((timestamps, reviewers.astype(str)))
    gaps = np.diff(timestamps[order])
    is_same_reviewer = reviewers[order][1:] == reviewers[order][:-1]
    return np.asarray(gaps[is_same_reviewer & (gaps <= MAX_PAUSE)])


def _depth_costs(judged: Sequence[JudgedRun], seed: int) -> tuple[Doubles, list[Row]]:
    """Calls and positives per query and depth band, shape (n_queries, n_bands, 2), and the rows of `depth_costs`."""
    band_tables = [build.run.tables("verdicts", "pool").sql(DEPTH_BANDS_SQL) for build in judged]
    n_bands = max(int(table["band"].to_numpy().max()) for table in band_tables) + 1
    band_counts = np.concatenate([_count_matrix(table, n_bands) for table in band_tables])
    deepest_rank = max(int(table["deepest"].to_numpy().max()) for table in band_tables)

    def positives_per_call(sums: Doubles) -> Doubles:
        # Columns alternate between calls and positives. A band without calls gives 0/0, so NaN.
        with np.errstate(invalid="ignore"):
            return np.asarray(sums[..., 1::2] / sums[..., ::2])

    # The interval is that of positives per call, inverted below: calls per positive are infinite in a resample without
    # a positive.
    low, high = interval(band_counts.reshape(len(band_counts), -1), positives_per_call, RESAMPLES, seed)
    rows = []
    for band, (n_calls, n_positives) in enumerate(band_counts.sum(axis=0).astype(int).tolist()):
        if n_calls:
            rows.append(
                {
                    "from_rank": 2 ** (band - 1) + 1 if band else 1,
                    "to_rank": min(2**band, deepest_rank),
                    "judged": True,
                    "calls": n_calls,
                    "positives": n_positives,
                    "calls_per_positive": n_calls / n_positives if n_positives else None,
                    "low": _reciprocal(high[band]),
                    "high": _reciprocal(low[band]),
                }
            )
    return band_counts, [*rows, *_deeper_rows(judged, deepest_rank, rows[-1])]


def _count_matrix(table: pa.Table, n_bands: int) -> Doubles:
    """Calls and positives of one build's rows of `DEPTH_BANDS_SQL`, shape (n_queries, n_bands, 2)."""
    query_index = table["query"].to_numpy()
    band = table["band"].to_numpy()
    counts = np.zeros((int(query_index.max()) + 1, n_bands, 2))
    counts[query_index, band, 0] = table["calls"].to_numpy()
    counts[query_index, band, 1] = table["positives"].to_numpy()
    return counts


def _deeper_rows(judged: Sequence[JudgedRun], deepest_rank: int, deepest_band: Row) -> list[Row]:
    """The row of `depth_costs` for doubling the judged depth; no row if no retriever ranked anything there.

    Its calls per positive are those of the deepest judged band: a lower bound if positives are no denser below it.
    """
    unjudged = [
        build.run.tables("rankings", "pool").sql(UNJUDGED_DEPTH_SQL, [deepest_rank]).to_pylist()[0] for build in judged
    ]
    n_calls = sum(row["calls"] for row in unjudged)
    if not n_calls:
        return []
    return [
        {
            "from_rank": deepest_rank + 1,
            "to_rank": max(row["deepest"] for row in unjudged if row["calls"]),
            "judged": False,
            "calls": n_calls,
            "positives": None,
            "calls_per_positive": deepest_band["calls_per_positive"],
            "low": deepest_band["low"],
            "high": deepest_band["high"],
        }
    ]


def _reciprocal(rate: float) -> float | None:
    """Calls per positive from positives per call; None, for unbounded, if the rate is 0 or unknown."""
    return float(1 / rate) if rate > 0 else None


def _model_rows(model: ModelCost) -> list[Row]:
    """Rows of `law_costs` for an encoder's speed and its hours of training and encoding."""
    hours_basis = f"training once and encoding {model.texts:,} texts"
    return [
        _cost_row(f"texts a second of {model.name}", model.texts_per_second, "measured by the grid"),
        _cost_row(f"hours of {model.name}", model.hours, hours_basis),
    ]
