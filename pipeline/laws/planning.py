"""The stage that plans: by each law, by other choices, and which queries to label next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.ingest.queries import INGEST_QUERIES
from darklode.pipeline.laws.batch import next_queries
from darklode.pipeline.laws.choices import OWN, compare_models, compare_sources, judge_deeper
from darklode.pipeline.laws.costs import JudgedRun, ModelCost, measured_costs
from darklode.pipeline.laws.fit import accepted_laws
from darklode.pipeline.laws.plan import PlanRequest, n_missing_labels, plan_laws
from darklode.pipeline.laws.points import ENTROPY, LawKey
from darklode.pipeline.laws.verdict import LawResult
from darklode.pipeline.train.sources import TrainingSource
from darklode.schemas.law_tables import DEPTH_COSTS, LAW_COSTS, LAW_PLAN, LAW_POINTS, LAW_VERDICTS, NEXT_QUERIES

PLAN = Stage(
    "law_plan",
    2,
    (LAW_POINTS.name, LAW_VERDICTS.name, *INGEST_QUERIES.writes[:1]),
    (LAW_PLAN.name, LAW_COSTS.name, DEPTH_COSTS.name, NEXT_QUERIES.name),
)

LEADING = ("nDCG@10", ENTROPY)
"""The measure that says how large the next batch is, the first of these that there is."""


@dataclass(frozen=True)
class PlanInputs:
    """The runs that a grid learned from, and what it found of its encoders; none of a file of points.

    Attributes:
        tenant: whose rows.
        sources: the runs.
        judged: those of them whose judge's work is known.
        models: the grid's encoders.
    """

    tenant: str
    sources: Sequence[TrainingSource] = ()
    judged: Sequence[JudgedRun] = ()
    models: Sequence[ModelCost] = ()


def law_plan(
    tables: Tables, output: Output, inputs: PlanInputs, request: PlanRequest, *, batch: int | None, seed: int
) -> None:
    """Write what may be done next, what that costs, and the next batch of queries.

    Args:
        tables: holds `law_points`, `law_verdicts`, and `raw_queries`: more queries to choose from.
        output: takes `law_plan`, `law_costs`, `depth_costs` and `next_queries`.
        inputs: of the runs.
        request: budget, target and prices.
        batch: queries to label next; None: as many as the budget buys, or as the leading law lacks.
        seed: of the resamples and clusters.
    """
    rows = tables.read(LAW_POINTS.name)
    took = measured_costs(inputs.judged, inputs.models, seed)
    priced_request = request.with_prices(took)
    laws = accepted_laws(tables)
    planned = plan_laws(laws, priced_request, seed)
    planned += [*compare_sources(rows, laws), *compare_models(rows, laws, took, priced_request), *judge_deeper(took)]
    planned = [{"place": position} | row for position, row in enumerate(planned, 1)]
    output.write(LAW_PLAN.name, pa.Table.from_pylist(planned, schema=LAW_PLAN.schema))
    for name, table in zip((LAW_COSTS.name, DEPTH_COSTS.name), took.tables(), strict=True):
        output.write(name, table)
    size = batch if batch is not None else _batch_size(laws, priced_request)
    candidates = next_queries(tables, output, inputs.sources, tenant=inputs.tenant, size=size, seed=seed)
    output.facts |= {"wanted": size, "candidates": candidates, "per_label": priced_request.per_label}


def _batch_size(laws: Mapping[LawKey, LawResult], request: PlanRequest) -> int:
    """As many as the budget buys; else what the leading law lacks, or a doubling; none where labels do not help."""
    if request.budget is not None and request.per_label:
        return int(request.budget / request.per_label)
    for measure in LEADING:
        keys = [key for key in laws if key.measure == measure]
        if keys:
            own = [key for key in keys if key.source == OWN] or keys[:1]
            return max(n_missing_labels(laws[key]) for key in own)
    return max(map(n_missing_labels, laws.values()), default=0)
