"""Decide by the release test of `adapt` whether the reranker is released: against the best order without training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.base.models.local import RERANKER_FOLDER
from darklode.pipeline.base.types import Row
from darklode.pipeline.reranker.evaluation import ALONE, BASE_RERANKER, BEST_ORDER, CANDIDATES, CONTROL, RERANKED
from darklode.pipeline.reranker.stage import best_trial
from darklode.pipeline.train.data.system_names import BASE, BM25
from darklode.pipeline.train.release.verdict import (
    DIFFERENCES_SQL,
    TEST_FACTS_SQL,
    format_interval,
    undecided_reason,
    with_detectable_gain,
)
from darklode.schemas.reranker_tables import RERANKER_TRIALS, RERANKER_VERDICT

RERANKER_VERDICT_STAGE = Stage(
    "reranker_verdict",
    2,
    ("adaptation_queries", RERANKER_TRIALS.name, "test_queries", "evaluation_pairs"),
    (RERANKER_VERDICT.name,),
)

SHIPPED, KEPT = "reranker", "none"
"""Values of `shipped`."""

SCORES_SQL = f"""
    WITH scores AS (FROM evaluation WHERE tenant IS NULL AND part =
        (SELECT max(part) FROM evaluation WHERE part IN ('own positive', 'counted')))
    SELECT s.system, s.queries, s.value AS "nDCG@10", r.value AS "R@10", j.value AS "Judged@10",
           p.difference AS "reranked − it", p.low, p.high, p.p
    FROM scores s JOIN scores r USING (system, part) JOIN scores j USING (system, part)
    LEFT JOIN evaluation_pairs p ON p.other = s.system AND p.system = '{RERANKED}' AND p.measure = 'nDCG@10'
        AND p.tenant IS NULL AND p.part = s.part
    WHERE s.measure = 'nDCG@10' AND r.measure = 'R@10' AND j.measure = 'Judged@10' ORDER BY s.value DESC, s.system
"""
"""All systems on the deciding test queries, best first."""


def decide_reranker(tables: Tables, output: Output) -> None:
    """Write the decision: the reranker if the test shows a gain over the best order that needs no training.

    That is the candidates' own order or the initial cross-encoder, whichever is better on validation. The gain must
    pass interval, test and lower bound of `adapt`'s release test, and have been seen on validation. BM25 alone and the
    encoder alone, which no fusion may be as good as, must not be better on the test.

    Args:
        tables: `adaptation_queries`, `reranker_trials`, `test_queries` and `evaluation_pairs`.
        output: receives `reranker_verdict`.
    """
    trial = best_trial(tables)
    facts: Row = tables.sql(TEST_FACTS_SQL).to_pylist()[0]
    has_better_base = trial["base"] is not None and trial["base"] > trial["candidates"]
    other = BASE_RERANKER if has_better_base else CANDIDATES
    rows = {(row.pop("system"), row.pop("other")): row for row in tables.sql(DIFFERENCES_SQL).to_pylist()}
    difference: Row = with_detectable_gain(rows.get((RERANKED, other), {})) if facts["queries"] else {}
    why = (
        _refusal_reason(trial, facts, other)
        or undecided_reason(difference, f"nDCG@10 against {other}")
        or _better_alone(rows)
    )
    reason = why or (
        f"nDCG@10 {format_interval(difference)} against {other} on {difference['queries']} test queries whose clusters "
        "and positives are not in training"
    )
    empty = dict.fromkeys(("part", "difference", "low", "high", "bounded_low", "p", "clusters", "detectable"))
    row: dict[str, Any] = facts | empty | difference
    row |= {"shipped": KEPT if why else SHIPPED, "reason": reason, "other": other}
    row |= {"weight": trial["weight"], "validation_queries": trial["queries"]}
    output.write(RERANKER_VERDICT.name, pa.Table.from_pylist([row], schema=RERANKER_VERDICT.schema))


def _refusal_reason(trial: Row, facts: Row, other: str) -> str | None:
    untrained = max(trial["candidates"], trial["base"] or 0.0)
    if trial["validation"] <= untrained:
        return (
            f"no trained model was better than {other} on {trial['queries']:,} validation queries (nDCG@10 "
            f"{trial['validation']:.3f} against {untrained:.3f})"
        )
    if not facts["queries"]:
        return "every test query shares a positive with training: a gain could be memorized"
    return None


def _better_alone(rows: Mapping[tuple[str, str], Row]) -> str | None:
    """Why a gain over the candidates is of no use: one of their two sources alone is at least as good on the test."""
    for system in (BM25, BASE):
        row = rows.get((RERANKED, system))
        if row and row["difference"] <= 0:
            interval = format_interval(row)
            return f"{system} alone needs no reranker: nDCG@10 of the reranked candidates {interval} against it"
    return None


def read_reranker_verdict(tables: Tables) -> Row:
    """The row of `reranker_verdict`."""
    rows: list[Row] = tables.read(RERANKER_VERDICT.name).to_pylist()
    return rows[0]


def format_comparisons(tables: Tables) -> str:
    """nDCG@10 of the systems on the deciding test queries, in a sentence."""
    values = {row["system"]: row["nDCG@10"] for row in tables.sql(SCORES_SQL).to_pylist()}
    order = (RERANKED, ALONE, BASE_RERANKER, CANDIDATES, BM25, BASE, CONTROL, BEST_ORDER)
    return ", ".join(f"{name} {values[name]:.3f}" for name in order if name in values)


def require_gain(run: Run) -> str:
    """The decision as a sentence.

    Raises:
        NoLift: no reranker is released; the message says why.
    """
    tables = run.tables()
    row = read_reranker_verdict(tables)
    systems = format_comparisons(tables)
    if row["shipped"] == KEPT:
        raise NoLift(f"{run.store.url} releases no reranker: {row['reason']}. nDCG@10: {systems}")
    return (
        f"{run.store.url}/{RERANKER_FOLDER}: {row['reason']}. Its scores have weight {row['weight']:g}, the "
        f"candidates' the rest. nDCG@10: {systems}."
    )
