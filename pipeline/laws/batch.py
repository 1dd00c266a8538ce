"""Which queries to label next: drawn from those that nobody labelled.

What a law of drawn queries says of more of them holds of a batch that is drawn, too. Queries of clusters without a
label and queries that retrievers disagree about could not be told from drawn ones by what they teach
(benchmarks/next_batch.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Tables
from darklode.pipeline.base.relations import keep
from darklode.pipeline.base.views import all_tables
from darklode.pipeline.train.pairs import give_way
from darklode.pipeline.train.sources import Source
from darklode.schemas.law_tables import NEXT_QUERIES

READS = ("raw_queries", "rejects", "log_queries", "query_clusters")
"""Tables of a run that are looked at besides those that are learned from; one that it lacks is empty."""

# Of queries their side, as `give_way` asks for it: those held out, those labelled, and those to choose from. Of cluster
# sampling's rejects the last are those that nothing kept stands for.
BUILD = """
    SELECT query_id, text, CASE
               WHEN split <> 'train' THEN 'test'
               WHEN query_id IN (SELECT query_id FROM qrels WHERE tenant = $tenant) THEN 'validation'
               ELSE 'train' END AS split,
           n_represented AS count
    FROM queries WHERE tenant = $tenant
    UNION ALL
    SELECT query_id, text, 'train', count FROM raw_queries SEMI JOIN (
        SELECT tenant, id AS query_id FROM rejects
        WHERE "table" = 'queries' AND reason = 'cluster sampling' AND represented_by IS NULL
    ) USING (tenant, query_id) WHERE tenant = $tenant
    ORDER BY query_id
"""

LOG = """
    SELECT query_id, text, CASE
               WHEN coalesce(split, '') <> 'train'
                    OR query_id IN (SELECT query_id FROM mined_test WHERE tenant = $tenant) THEN 'test'
               WHEN query_id IN (SELECT query_id FROM triplets WHERE tenant = $tenant) THEN 'validation'
               ELSE 'train' END AS split,
           1 AS count
    FROM log_queries LEFT JOIN query_clusters USING (tenant, query_id) WHERE tenant = $tenant
    ORDER BY query_id
"""

FILES = "SELECT query_id, text, 'train' AS split, count FROM raw_queries WHERE tenant = $tenant ORDER BY query_id"

# The order decides which of equal texts stays: what a run has before what a file has.
NUMBERED = "SELECT row_number() OVER () - 1 AS n, CAST($tenant AS VARCHAR) AS tenant, * FROM given"

# By a hash, so that what is labelled or comes in changes nothing in the order of the others.
DRAWN = """
    WITH alike AS (
        SELECT *, md5(concat_ws(':', CAST($seed AS BIGINT), lower(trim(text)))) AS draw,
               row_number() OVER (PARTITION BY lower(trim(text)) ORDER BY n) AS copy,
               sum(count) OVER (PARTITION BY lower(trim(text))) AS asked
        FROM {numbered} WHERE split = 'train' AND n NOT IN (FROM {near})
    )
    SELECT tenant, query_id, text AS query, row_number() OVER (ORDER BY draw) AS place, CAST(asked AS BIGINT) AS count
    FROM alike WHERE copy = 1 ORDER BY place
"""


def next_queries(
    tables: Tables, output: Output, sources: Sequence[Source], *, tenant: str, size: int, seed: int
) -> int:
    """Write the next batch: drawn from what the runs know and nobody labelled, and from the queries of files.

    A candidate near to a labelled or a held-out query goes.

    Args:
        tables: holds `raw_queries`, those of files.
        output: takes `next_queries`.
        sources: the runs; none for a file of points.
        tenant: whose.
        size: at most so many.
        seed: of the draw.

    Returns:
        How many candidates there are.
    """
    given = [_of_run(source, tenant) for source in sources]
    with tables.connect(FILES) as connection:
        given.append(_plain(connection.sql(FILES, params={"tenant": tenant}).to_arrow_table()))
        connection.register("given", pa.concat_tables(given))
        numbered = keep(connection, NUMBERED, {"tenant": tenant})
        near = give_way(connection, numbered)
        drawn = DRAWN.format(numbered=numbered, near=near)
        every = connection.sql(drawn, params={"seed": seed}).to_arrow_table()
        (candidates,) = connection.sql(f"SELECT count(*) FILTER (split = 'train') FROM {numbered}").fetchall()[0]
    rows = every.slice(0, size)
    output.write(NEXT_QUERIES.name, rows.cast(NEXT_QUERIES.schema))
    left = {"near to a labelled or held-out query, or said twice": int(candidates) - every.num_rows}
    left["left for later"] = every.num_rows - rows.num_rows
    dropped = {reason: count for reason, count in left.items() if count}
    output.count(
        FunnelStep("next_queries", "unlabelled queries", int(candidates), "next queries", rows.num_rows, dropped)
    )
    return int(every.num_rows)


def _of_run(source: Source, tenant: str) -> pa.Table:
    query = LOG if source.mined else BUILD
    with all_tables(source.run).connect(query) as connection:
        rows = connection.sql(query, params={"tenant": tenant}).to_arrow_table()
    return _plain(source.named(rows, "query_id"))


def _plain(rows: pa.Table) -> pa.Table:
    kinds = (pa.string(), pa.string(), pa.string(), pa.int64())
    return rows.cast(pa.schema(list(zip(rows.column_names, kinds, strict=True))))
