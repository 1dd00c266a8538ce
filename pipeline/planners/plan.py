"""The stage that asks the planner about each new query."""

import pyarrow as pa

from pipeline.artifacts import FunnelStep, Output, Stage, Tables, key_of
from pipeline.planners.port import Planner

PLAN_QUERIES = Stage("plan_queries", 1, ("log_queries",), ("query_terms",))

QUERIES_AT_ONCE = 50_000


def plan_queries(tables: Tables, output: Output, *, planner: Planner) -> None:
    """Write the importance of each query's terms, by tenant and query; each part of `log_queries` is a unit.

    A part holds the queries of one date, so a night asks about its own; with another planner all are asked anew.
    """
    parts = tables.parts("log_queries")
    planned = 0
    for done, part in enumerate(parts):
        with output.unit(part.sha256, basis=key_of(part.sha256, planner.version)) as unit:
            if not unit.done:
                unit.facts["planned"] = _part(tables.part(part), output, planner)
        planned += unit.facts["planned"]
        output.progress(done + 1, len(parts))
    queries = tables.rows("log_queries")
    dropped = {"no important term": queries - planned} if planned < queries else {}
    output.count(FunnelStep("plan_queries", "queries", queries, "queries", planned, dropped))


def _part(queries: pa.Table, output: Output, planner: Planner) -> int:
    """Write the terms of a part's queries; the number of queries that have any."""
    planned = 0
    for start in range(0, queries.num_rows, QUERIES_AT_ONCE):
        rows = planner.terms(queries.slice(start, QUERIES_AT_ONCE).select(["tenant", "query_id", "text"]))
        output.write("query_terms", rows)
        planned += rows.group_by(["tenant", "query_id"]).aggregate([]).num_rows
    return planned
