"""The stage `law_plan`: plans by each law, alternatives to more labels, and the next queries to label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.ingest.queries import INGEST_QUERIES
from darklode.pipeline.laws.alternatives import OWN_LABELS, compare_models, compare_sources, judge_deeper
from darklode.pipeline.laws.costs import JudgedRun, ModelCost, measured_costs
from darklode.pipeline.laws.fit_stage import accepted_laws
from darklode.pipeline.laws.label_plan import PlanRequest, n_missing_labels, plan_laws
from darklode.pipeline.laws.next_queries import next_queries
from darklode.pipeline.laws.points import ENTROPY_MEASURE, LawKey
from darklode.pipeline.laws.verdict import LawResult
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.law_tables import DEPTH_COSTS, LAW_COSTS, LAW_PLAN, LAW_POINTS, LAW_VERDICTS, NEXT_QUERIES

PLAN_STAGE = Stage(
    "law_plan",
    2,
    (LAW_POINTS.name, LAW_VERDICTS.name, *INGEST_QUERIES.writes[:1]),
    (LAW_PLAN.name, LAW_COSTS.name, DEPTH_COSTS.name, NEXT_QUERIES.name),
)

LEADING_MEASURES = ("nDCG@10", ENTROPY_MEASURE)
"""Measures that decide the size of the next batch; the first available one is used."""


@dataclass(frozen=True)
class PlanInputs:
    """The runs behind a grid and the costs of its encoders; empty for a file of points.

    Attributes:
        tenant: the tenant whose queries are candidates.
        sources: all runs whose labels the grid was trained on.
        judged: those of the runs whose judge calls are recorded.
        models: measured costs of the grid's encoders.
    """

    tenant: str
    sources: Sequence[TrainingSource] = ()
    judged: Sequence[JudgedRun] = ()
    models: Sequence[ModelCost] = ()


def law_plan(
    tables: Tables, output: Output, inputs: PlanInputs, request: PlanRequest, *, batch: int | None, seed: int
) -> None:
    """Write the possible next steps, their costs, and the next batch of queries to label.

    Args:
        tables: hold `law_points`, `law_verdicts` and `raw_queries` (further candidate queries).
        output: receives `law_plan`, `law_costs`, `depth_costs` and `next_queries`.
        inputs: the runs behind the grid and the costs of its encoders.
        request: budget, target and prices.
        batch: number of queries to label next; None: what the budget buys, or what the leading law is missing.
        seed: seed of the intervals and of the clustering.
    """
    rows = tables.read(LAW_POINTS.name)
    costs = measured_costs(inputs.judged, inputs.models, seed)
    priced_request = request.with_prices(costs)
    laws = accepted_laws(tables)
    plan_rows = [
        *plan_laws(laws, priced_request, seed),
        *compare_sources(rows, laws),
        *compare_models(rows, laws, costs, priced_request),
        *judge_deeper(costs),
    ]
    plan_rows = [{"rank": rank} | row for rank, row in enumerate(plan_rows, 1)]
    output.write(LAW_PLAN.name, pa.Table.from_pylist(plan_rows, schema=LAW_PLAN.schema))
    for name, table in zip((LAW_COSTS.name, DEPTH_COSTS.name), costs.tables(), strict=True):
        output.write(name, table)
    size = batch if batch is not None else _batch_size(laws, priced_request)
    candidates = next_queries(tables, output, inputs.sources, tenant=inputs.tenant, size=size, seed=seed)
    output.facts |= {"wanted": size, "candidates": candidates, "per_label": priced_request.per_label}


def _batch_size(laws: Mapping[LawKey, LawResult], request: PlanRequest) -> int:
    """Number of queries to label next: what the budget buys, otherwise what the leading law needs.

    See `n_missing_labels` for what a law needs; 0 if labels do not help.
    """
    if request.budget is not None and request.per_label:
        return int(request.budget / request.per_label)
    for measure in LEADING_MEASURES:
        keys = [key for key in laws if key.measure == measure]
        if keys:
            leading_keys = [key for key in keys if key.source == OWN_LABELS] or keys[:1]
            return max(n_missing_labels(laws[key]) for key in leading_keys)
    return max(map(n_missing_labels, laws.values()), default=0)
