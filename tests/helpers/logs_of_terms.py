"""Small made-up logs: tenants' queries, the day of each and the importance of its terms."""

import random
from collections.abc import Mapping
from datetime import date, timedelta
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from darklode.pipeline.mine.association.algorithm import Associations
from darklode.schemas.mining import AssociateSettings
from darklode.schemas.tables import TABLES

FIRST = date(2026, 3, 1)
TERMS = ["a", "b", "c", "d", "e", "f", "é", "z\U0001f600"]
# Thresholds and their neighbours in float32 and in double precision, ties, and 0.
IMPORTANCES = [0.0, 0.1, 0.29999998211860657, 0.3, 0.30000001192092896, 0.31, 0.5, 0.5000000596046448, 0.7, 0.9, 1.0]

Query = tuple[int, dict[str, float]]
Log = dict[tuple[str, str], Query]

SCORES = st.one_of(
    st.dictionaries(st.sampled_from(TERMS), st.sampled_from(IMPORTANCES), max_size=7),
    st.dictionaries(st.sampled_from(TERMS), st.sampled_from([0.31, 0.5, 0.7, 0.9]), min_size=5, max_size=7),
    st.dictionaries(st.sampled_from(TERMS), st.floats(0, 1, width=32), max_size=5),
)
LOGS = st.dictionaries(
    st.tuples(st.sampled_from(["t", "u"]), st.sampled_from([f"q{n}" for n in range(12)])),
    st.tuples(st.integers(0, 3), SCORES),
    max_size=14,
)


def random_log(seed: int, tenants: int) -> Log:
    """Up to 10 queries of each tenant over its own few terms and importances, so that many meet."""
    generator = random.Random(seed)
    log: Log = {}
    for tenant in range(tenants):
        terms = generator.sample(TERMS, generator.randint(1, len(TERMS)))
        scores = generator.sample(IMPORTANCES, generator.randint(1, 5))
        for query in range(generator.randint(1, 10)):
            held = generator.sample(terms, generator.randint(0, len(terms)))
            planned = {term: generator.choice(scores) for term in held}
            log[f"t{tenant:03}", f"q{query}"] = generator.randint(0, 3), planned
    return log


def tables_of(log: Log) -> tuple[pa.Table, pa.Table]:
    """Rows of `log_queries` and of `query_terms`."""
    texts = [" ".join(scores) for _, scores in log.values()]
    queries = {
        "tenant": [tenant for tenant, _ in log],
        "query_id": [query for _, query in log],
        "text": texts,
        "normal_form": texts,
        "date": [FIRST + timedelta(days=day) for day, _ in log.values()],
    }
    rows = [(*query, term, score) for query, (_, scores) in log.items() for term, score in scores.items()]
    names = ("tenant", "query_id", "term", "importance")
    terms = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return TABLES["log_queries"].rows(queries), TABLES["query_terms"].rows(terms)


@cache  # a database of one's own takes longer than what is asked of it
def database(threads: int) -> duckdb.DuckDBPyConnection:
    """An empty database; each of its cursors has relations and temp tables of its own."""
    return duckdb.connect(config={"threads": threads})


def found(log: Log, since: date = date.min, threads: int = 2, **settings: Any) -> list[dict[str, Any]]:
    """Rows of `associations`, in the order given; by the paper's rule unless said otherwise."""
    queries, terms = tables_of(log)
    with database(threads).cursor() as connection:
        connection.register("log_queries", queries)
        connection.register("query_terms", terms)
        pieces = list(Associations(connection, AssociateSettings(**{"rule": "paper"} | settings), since).rows())
    assert all(set(rows["date"].to_pylist()) == {day} for day, rows in pieces)
    return [row for _, rows in pieces for row in rows.to_pylist()]


def planned(log: Mapping[tuple[str, str], Query], tenant: str) -> dict[str, dict[str, Any]]:
    """Importances by term and query of one tenant, as float32."""
    return {
        query: {term: np.float32(score) for term, score in scores.items()}
        for (owner, query), (_, scores) in log.items()
        if owner == tenant
    }
