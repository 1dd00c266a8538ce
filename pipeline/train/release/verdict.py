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
from darklode.pipeline.train.data.system_names import ADAPTED, BASE, by_ranks, by_scores
from darklode.pipeline.train.release.evaluation import CONTROL
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTER_VERDICT

VERDICT_STAGE = Stage(
    "adapter_verdict",
    6,
    ("adaptation_queries", "adaptation_trials", "headroom", "test_queries", "evaluation_pairs"),
    (ADAPTER_VERDICT.name,),
)

DECIDING_PART = "own positive"
"""The deciding part of the test: queries of clusters that training does not contain, sharing none of its positives."""


TEST_FACTS_SQL = """
    SELECT (SELECT min(tenant) FROM adaptation_queries) AS tenant,
           count(*) FILTER (NOT shares_positive AND coalesce(kind, 'unseen') = 'unseen') AS queries
    FROM test_queries
"""

# Of the deciding part. A part that holds every counted query has no rows of its own.
DIFFERENCES_SQL = """
    SELECT system, other, part, queries, clusters, difference, low, high, bounded_low, p, detectable
    FROM evaluation_pairs
    WHERE tenant IS NULL AND measure = 'nDCG@10'
      AND part = (SELECT max(part) FROM evaluation_pairs WHERE part IN ('own positive', 'counted'))
"""

LABEL_FREE_SQL = """
    SELECT system FROM headroom WHERE label_free AND measure = 'nDCG@10' ORDER BY value DESC, system
"""

COMPARISONS = ("label_free", "hybrid", "control")
"""What the adapted encoder is compared with besides the base; columns of `adapter_verdict`."""


def decide_release(tables: Tables, output: Output, settings: AdaptSettings, label_bias: str | None = None) -> None:
    """Write the decision: the adapted encoder if the test shows a lift, the base otherwise.

    A lift needs at least `MIN_CLUSTERS` clusters and must pass interval, test and lower bound (`is_gain`). The base is
    released, too, if validation selected it. Beside it stand the differences to the best label-free system, to hybrid
    search without adaptation, and to the same method with shuffled labels.

    Args:
        tables: `adaptation_queries`, `test_queries`, the trials, `headroom` and `evaluation_pairs`.
        output: `adapter_verdict`.
        settings: how the encoder will be served.
        label_bias: why the labels favour the base, see `shared_models`; None if they do not.
    """
    from darklode.pipeline.train.fit.stage import best_trial

    chosen = best_trial(tables)
    facts: Row = tables.sql(TEST_FACTS_SQL).to_pylist()[0]
    label_free = tables.sql(LABEL_FREE_SQL)["system"].to_pylist()
    fused = next(system for system in label_free if system in {by_ranks(BASE), by_scores(BASE)})
    fused_adapted = by_ranks(ADAPTED) if fused == by_ranks(BASE) else by_scores(ADAPTED)
    rows = {(row.pop("system"), row.pop("other")): row for row in tables.sql(DIFFERENCES_SQL).to_pylist()}
    if not facts["queries"]:
        rows = {}
    difference: Row = rows.get((fused_adapted, fused) if settings.serve_as == "hybrid" else (ADAPTED, BASE), {})
    difference = with_detectable_gain(difference)
    served = f"fused with BM25 ({fused.rpartition(', ')[2]}), " if settings.serve_as == "hybrid" else ""
    why = _refusal_reason(chosen, facts) or undecided_reason(difference, f"{served}nDCG@10")
    shipped = "base" if why else "adapted"
    reason = why or (
        f"{served}nDCG@10 {format_interval(difference)} on {difference['queries']} test queries whose clusters and "
        "positives are not in training"
    )
    about = {name: chosen[name] for name in ("setting", "share", "folds")} | {"shipped": shipped, "reason": reason}
    about["validation_queries"] = chosen["queries"]
    empty = dict.fromkeys(("part", "difference", "low", "high", "bounded_low", "p", "clusters", "detectable"))
    row = facts | empty | difference | about | {"label_bias": label_bias}
    row |= _comparison("label_free", label_free[0], rows.get((ADAPTED, label_free[0])))
    row |= _comparison("hybrid", fused, rows.get((fused_adapted, fused)))
    row |= _comparison("control", CONTROL, rows.get((ADAPTED, CONTROL)))
    output.write(ADAPTER_VERDICT.name, pa.Table.from_pylist([row], schema=ADAPTER_VERDICT.schema))


def _comparison(name: str, system: str, difference: Row | None) -> Row:
    columns = {name: system if difference else None}
    ends = {"": "difference", "_low": "low", "_high": "high"}
    return columns | {f"over_{name}{end}": difference[of] if difference else None for end, of in ends.items()}


def format_comparisons(row: Mapping[str, Any]) -> list[str]:
    """The other comparisons as sentences: with the best system without labels, in hybrid search, with shuffled labels.

    Args:
        row: a row of `adapter_verdict`.
    """
    interval = {
        name: format_interval(
            {"difference": row[f"over_{name}"], "low": row[f"over_{name}_low"], "high": row[f"over_{name}_high"]}
        )
        for name in COMPARISONS
        if row[name] is not None
    }
    sentences = []
    if "label_free" in interval and row["label_free"] != BASE:
        sentences.append(
            f"Against {row['label_free']}, the best system without labels on validation: {interval['label_free']}"
        )
    if "hybrid" in interval:
        sentences.append(f"In hybrid search, against {row['hybrid']}: {interval['hybrid']}")
    if "control" in interval:
        sentences.append(f"What the labels brought, against shuffled labels: {interval['control']}")
    return sentences


def _refusal_reason(best_row: Mapping[str, Any], facts: Mapping[str, Any]) -> str | None:
    if best_row["share"] == 0:
        return (
            f"no setting was better than the base, selected {format_selection(best_row['queries'], best_row['folds'])}"
        )
    if not facts["queries"]:
        return "every test query shares a positive with training: a gain could be memorized"
    return None


def with_detectable_gain(difference: Row) -> Row:
    """A row of `evaluation_pairs` whose `detectable` is the gain that would be released with 80 % power."""
    if not difference or difference["detectable"] is None:
        return difference
    return difference | {"detectable": detectable_gain(difference["detectable"] / POWER_FACTOR, difference["clusters"])}


def undecided_reason(difference: Mapping[str, Any], measure: str) -> str | None:
    """Why a difference shows no gain by the release test; None if it does.

    Args:
        difference: a row of `evaluation_pairs`, see `with_detectable_gain`.
        measure: name of what was compared.
    """
    if is_gain(difference):
        return None
    queries, clusters = difference["queries"], difference["clusters"]
    if clusters < MIN_CLUSTERS:
        return format_too_few(queries, clusters)
    message = f"{measure} {format_interval(difference)} on {queries} test queries"
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
        f"too few clusters to decide: the {queries} test queries that share no positive with training are in "
        f"{clusters} clusters, at least {MIN_CLUSTERS} are needed; label test queries of other clusters"
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


def format_interval(difference: Mapping[str, Any]) -> str:
    """A difference with its interval."""
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
    more = "".join(f". {sentence}" for sentence in format_comparisons(row))
    warning = f". {row['label_bias']}" if row["label_bias"] else ""
    if row["shipped"] == "base":
        raise NoLift(f"{run.store.url}/query_encoder is the base itself: {row['reason']}{more}{warning}")
    how = format_selection(row["validation_queries"], row["folds"])
    return f"{run.store.url}/query_encoder is adapted: {row['reason']}. Its setting was chosen {how}{more}{warning}."
