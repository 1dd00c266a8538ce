"""Rows of `query_terms` from a planner that looks at one query after another."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from schemas.mined_tables import QUERY_TERMS

Plan = Callable[[str, str], Mapping[str, float]]
"""Term → importance, of a tenant and a query's text."""


def planned(queries: pa.Table, plan: Plan) -> pa.Table:
    """Rows of `query_terms` for rows of tenant, query_id and text, a query's terms in the order that `plan` gives."""
    places: list[int] = []
    terms: list[str] = []
    importances: list[float] = []
    texts = zip(queries["tenant"].to_pylist(), queries["text"].to_pylist(), strict=True)
    for place, (tenant, text) in enumerate(texts):
        found = plan(tenant, text)
        places += [place] * len(found)
        terms += found
        importances += found.values()
    rows = pa.array(places, pa.int64())
    named = {name: queries[name].take(rows) for name in ("tenant", "query_id")}
    return QUERY_TERMS.rows(named | {"term": terms, "importance": pa.array(importances, pa.float32())})
