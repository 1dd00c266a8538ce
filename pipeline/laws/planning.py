"""The stage that plans: by each law, by other choices, and which queries to label next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.ingest.queries import INGEST_QUERIES
from darklode.pipeline.laws.batch import next_queries
from darklode.pipeline.laws.choices import OWN, deeper, models, others
from darklode.pipeline.laws.costs import Judged, Model, spent
from darklode.pipeline.laws.fit import standing
from darklode.pipeline.laws.plan import Wanted, lacking, plans
from darklode.pipeline.laws.points import ENTROPY, LawKey
from darklode.pipeline.laws.verdict import Found
from darklode.pipeline.train.sources import Source
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
class Known:
    """The runs that a grid learned from, and what it found of its encoders; none of a file of points.

    Attributes:
        tenant: whose rows.
        sources: the runs.
        judged: those of them whose judge's work is known.
        models: the grid's encoders.
    """

    tenant: str
    sources: Sequence[Source] = ()
    judged: Sequence[Judged] = ()
    models: Sequence[Model] = ()


def law_plan(tables: Tables, output: Output, known: Known, wanted: Wanted, *, batch: int | None, seed: int) -> None:
    """Write what may be done next, what that costs, and the next batch of queries.

    Args:
        tables: holds `law_points`, `law_verdicts`, and `raw_queries`: more queries to choose from.
        output: takes `law_plan`, `law_costs`, `depth_costs` and `next_queries`.
        known: of the runs.
        wanted: budget, target and prices.
        batch: queries to label next; None: as many as the budget buys, or as the leading law lacks.
        seed: of the resamples and clusters.
    """
    rows = tables.read(LAW_POINTS.name)
    took = spent(known.judged, known.models, seed)
    asked = wanted.priced(took)
    laws = standing(tables)
    planned = plans(laws, asked, seed)
    planned += [*others(rows, laws), *models(rows, laws, took, asked), *deeper(took)]
    planned = [{"place": place} | row for place, row in enumerate(planned, 1)]
    output.write(LAW_PLAN.name, pa.Table.from_pylist(planned, schema=LAW_PLAN.schema))
    for name, table in zip((LAW_COSTS.name, DEPTH_COSTS.name), took.tables(), strict=True):
        output.write(name, table)
    size = batch if batch is not None else _size(laws, asked)
    candidates = next_queries(tables, output, known.sources, tenant=known.tenant, size=size, seed=seed)
    output.facts |= {"wanted": size, "candidates": candidates, "per_label": asked.per_label}


def _size(laws: Mapping[LawKey, Found], asked: Wanted) -> int:
    """As many as the budget buys; else what the leading law lacks, or a doubling; none where labels do not help."""
    if asked.budget is not None and asked.per_label:
        return int(asked.budget / asked.per_label)
    for measure in LEADING:
        keys = [key for key in laws if key.measure == measure]
        if keys:
            own = [key for key in keys if key.source == OWN] or keys[:1]
            return max(lacking(laws[key]) for key in own)
    return max(map(lacking, laws.values()), default=0)
