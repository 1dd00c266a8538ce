"""Decide whether the adapted encoder or the base is released, from validation and test results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.base.types import Row
from darklode.pipeline.evaluate.paired import MIN_CLUSTERS, POWER_FACTOR, detectable_gain, is_above_zero, is_gain
from darklode.schemas.adaptation_tables import ADAPTER_VERDICT

VERDICT_STAGE = Stage(
    "adapter_verdict",
    5,
    ("adaptation_queries", "adaptation_trials", "adapter_weights", "test_queries", "evaluation_pairs"),
    (ADAPTER_VERDICT.name,),
)

DECIDING_PART = "own positive"
"""The deciding part of the test: queries of clusters that training does not contain, sharing none of its positives."""


TEST_FACTS_SQL = """
    SELECT (SELECT min(tenant) FROM adaptation_queries) AS tenant,
           count(*) FILTER (NOT shares_positive AND coalesce(kind, 'unseen') = 'unseen') AS queries
    FROM test_queries
"""

# A part that holds every counted query has no rows of its own.
DECIDING_DIFFERENCE_SQL = """
    SELECT part, queries, clusters, difference, low, high, bounded_low, p, detectable FROM evaluation_pairs
    WHERE tenant IS NULL AND measure = 'nDCG@10' AND part IN ('own positive', 'counted')
    ORDER BY part DESC LIMIT 1
"""


def decide_release(tables: Tables, output: Output, label_bias: str | None = None) -> None:
    """Write the decision: the adapted encoder if the test shows a lift, the base otherwise.

    A lift needs at least `MIN_CLUSTERS` clusters and must pass interval, test and lower bound (`is_gain`). The base is
    released, too, if validation selected it.

    Args:
        tables: `adaptation_queries`, `test_queries`, the trials and `evaluation_pairs`.
        output: `adapter_verdict`.
        label_bias: why the labels favour the base, see `shared_models`; None if they do not.
    """
    from darklode.pipeline.train.fit.stage import best_trial

    chosen = best_trial(tables)
    facts: Row = tables.sql(TEST_FACTS_SQL).to_pylist()[0]
    difference: Row = tables.sql(DECIDING_DIFFERENCE_SQL).to_pylist()[0] if facts["queries"] else {}
    if difference and difference["detectable"] is not None:
        difference["detectable"] = detectable_gain(difference["detectable"] / POWER_FACTOR, difference["clusters"])
    why = _refusal_reason(chosen, facts) or _undecided_reason(difference)
    shipped = "base" if why else "adapted"
    reason = why or (
        f"nDCG@10 {_format_interval(difference)} on {difference['queries']} test queries whose clusters and positives "
        "are not in training"
    )
    about = {name: chosen[name] for name in ("setting", "share", "folds")} | {"shipped": shipped, "reason": reason}
    about["validation_queries"] = chosen["queries"]
    empty = dict.fromkeys(("part", "difference", "low", "high", "bounded_low", "p", "clusters", "detectable"))
    row = facts | empty | difference | about | {"label_bias": label_bias}
    output.write(ADAPTER_VERDICT.name, pa.Table.from_pylist([row], schema=ADAPTER_VERDICT.schema))


def _refusal_reason(best_row: Mapping[str, Any], facts: Mapping[str, Any]) -> str | None:
    if best_row["share"] == 0:
        return (
            f"no setting was better than the base, selected {format_selection(best_row['queries'], best_row['folds'])}"
        )
    if not facts["queries"]:
        return "every test query shares a positive with training: a gain could be memorized"
    return None


def _undecided_reason(difference: Mapping[str, Any]) -> str | None:
    if is_gain(difference):
        return None
    queries, clusters = difference["queries"], difference["clusters"]
    if clusters < MIN_CLUSTERS:
        return format_too_few(queries, clusters)
    message = f"nDCG@10 {_format_interval(difference)} on {queries} test queries"
    if is_above_zero({**difference, "low": -difference["high"]}):
        return f"it is worse: {message}"
    if difference["difference"] <= 0:
        return f"no gain: {message}"
    n_more = math.ceil((clusters_needed(difference) / clusters - 1) * queries)
    labels = f"label about {n_more:,} more" if n_more > 0 else "label more"
    if is_above_zero(difference):
        return f"undecided: {message}; a rare loss that these queries do not show could outweigh it; {labels}"
    return f"undecided: {message}, which can detect {difference['detectable']:.3f}; {labels}"


def format_too_few(queries: int, clusters: int) -> str:
    """The reason if there are fewer than `MIN_CLUSTERS` test clusters, and what to do."""
    return (
        f"too few clusters to decide: the {queries} test queries are in {clusters} clusters, at least {MIN_CLUSTERS} "
        "are needed; label test queries of other clusters"
    )


def clusters_needed(difference: Mapping[str, Any]) -> int:
    """Approximate number of clusters that would release this lift with 80 % power; at least the present number."""
    n = int(difference["clusters"])
    gain = difference["detectable"] - 1 / n
    deviation = math.sqrt(max(0.0, (gain / POWER_FACTOR) ** 2 - 1 / n**2) * n)
    n_needed = n
    while detectable_gain(deviation / math.sqrt(n_needed), n_needed) > difference["difference"]:
        n_needed = math.ceil(n_needed * 1.02)
    return n_needed


def _format_interval(difference: Mapping[str, Any]) -> str:
    if difference["low"] is None:
        return f"{difference['difference']:+.3f}, from a single cluster"
    return f"{difference['difference']:+.3f} ({difference['low']:+.3f} to {difference['high']:+.3f})"


def format_selection(queries: int, folds: int | None) -> str:
    """What the selection was made on, in words."""
    if folds is None:
        return f"on {queries:,} validation queries"
    return f"by cross-validation, {folds} folds of clusters, on {queries:,} train and validation queries"


def read_verdict(tables: Tables) -> Row:
    """The row of `adapter_verdict`."""
    rows: list[Row] = tables.read(ADAPTER_VERDICT.name).to_pylist()
    return rows[0]


def require_lift(run: Run) -> str:
    """The decision as a sentence.

    Raises:
        NoLift: the base is released; the message says why.
    """
    row = read_verdict(run.tables(ADAPTER_VERDICT.name))
    if row["shipped"] == "base":
        warning = f". {row['label_bias']}" if row["label_bias"] else ""
        raise NoLift(f"{run.store.url}/query_encoder is the base itself: {row['reason']}{warning}")
    how = format_selection(row["validation_queries"], row["folds"])
    warning = f" {row['label_bias']}." if row["label_bias"] else ""
    return f"{run.store.url}/query_encoder is adapted: {row['reason']}. Its setting was chosen {how}.{warning}"
