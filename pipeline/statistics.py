"""Numbers about a run, each a small Arrow table: the dataset card and the report print them.

Every function takes `views.all_tables(run)`, or tables that hold those named in its query.
"""

import pyarrow as pa

from pipeline.artifacts import Tables

SIZES = """
    WITH sizes AS (
        SELECT tenant, 'documents' AS kind, count(*) AS n FROM documents GROUP BY tenant UNION ALL
        SELECT tenant, 'chunks', count(*) FROM chunks GROUP BY tenant UNION ALL
        SELECT tenant, 'raw_queries', count(*) FROM raw_queries GROUP BY tenant UNION ALL
        SELECT tenant, 'queries', count(*) FROM queries GROUP BY tenant
    )
    SELECT tenant,
           coalesce(CAST(sum(n) FILTER (kind = 'documents') AS BIGINT), 0) AS documents,
           coalesce(CAST(sum(n) FILTER (kind = 'chunks') AS BIGINT), 0) AS chunks,
           coalesce(CAST(sum(n) FILTER (kind = 'raw_queries') AS BIGINT), 0) AS raw_queries,
           coalesce(CAST(sum(n) FILTER (kind = 'queries') AS BIGINT), 0) AS queries
    FROM sizes GROUP BY tenant ORDER BY tenant
"""

FUNNEL = "SELECT * EXCLUDE (position) FROM funnel ORDER BY position, reason NULLS FIRST"

JUDGES = """
    SELECT judge_id, count(*) AS verdicts,
           count(*) FILTER (relevant) AS relevant,
           count(*) FILTER (NOT relevant) AS not_relevant,
           count(*) FILTER (relevant IS NULL) AS unreadable
    FROM {table} GROUP BY judge_id ORDER BY judge_id
"""

STOPPING = "SELECT * FROM stopping ORDER BY tenant"
CALIBRATION = "SELECT * FROM calibration ORDER BY tenant"

RELIABILITY = "SELECT * FROM reliability ORDER BY tenant, bin"

POOL_SIZES = """
    WITH sizes AS (
        SELECT count(pool.chunk_id) AS n FROM queries LEFT JOIN pool USING (tenant, query_id) GROUP BY tenant, query_id
    )
    SELECT count(*) AS queries, min(n) AS min, avg(n) AS mean, median(n) AS median, max(n) AS max
    FROM sizes HAVING count(*) > 0
"""

POOL_FOUND_BY = """
    SELECT len(retrievers) AS retrievers, count(*) AS candidates, count(*) / sum(count(*)) OVER () AS share
    FROM pool GROUP BY len(retrievers) ORDER BY len(retrievers)
"""

# The deviation is of whole numbers: stddev_pop's last digits hang on the order of the rows.
LABELS = """
    WITH golden AS (
        SELECT split, count(*) FILTER (relevance > 0) AS n
        FROM queries LEFT JOIN qrels USING (tenant, query_id) GROUP BY tenant, query_id, split
    )
    SELECT coalesce(split, 'all') AS split, count(*) AS queries,
           count(*) FILTER (n > 0) AS with_positives,
           count(*) FILTER (n = 0) AS without_positives,
           CAST(sum(n) AS BIGINT) AS positives,
           avg(n) FILTER (n > 0) AS mean,
           median(n) FILTER (n > 0) AS median,
           sqrt(CAST(sum(n * n) FILTER (n > 0) * count(*) FILTER (n > 0)
                     - sum(n) FILTER (n > 0) * sum(n) FILTER (n > 0) AS DOUBLE))
               / nullif(count(*) FILTER (n > 0), 0) AS deviation
    FROM golden GROUP BY ROLLUP (split) HAVING count(*) > 0
    ORDER BY array_position(['train', 'validation', 'test'], golden.split) NULLS LAST
"""

TRIPLETS = """
    SELECT split, source, count(*) AS rows, count(DISTINCT (tenant, query_id)) AS queries,
           avg(len(negatives)) AS mean_negatives, min(len(negatives)) AS min_negatives,
           count(*) FILTER (len(negatives) < $1) AS short_rows,
           CAST(sum($1 - least(len(negatives), $1)) AS BIGINT) AS missing_negatives
    FROM triplets GROUP BY split, source
    ORDER BY array_position(['train', 'validation'], split), source
"""

AUDIT_RETRIEVERS = "SELECT * FROM audit_retrievers ORDER BY tenant NULLS FIRST, recall DESC, retriever"

AUDIT_OVERLAP = """
    PIVOT (SELECT retriever, other, jaccard FROM audit_overlap) ON other USING first(jaccard) ORDER BY retriever
"""


def sizes(tables: Tables) -> pa.Table:
    """Rows of documents, chunks, raw_queries and queries per tenant."""
    return tables.sql(SIZES)


def funnel(tables: Tables) -> pa.Table:
    """The funnel in its order, without the position."""
    return tables.sql(FUNNEL)


def judges(tables: Tables) -> pa.Table:
    """Verdicts per judge_id: relevant, not_relevant, unreadable."""
    return tables.sql(JUDGES.format(table="verdicts"))


def members(tables: Tables) -> pa.Table:
    """The same of each member of a panel."""
    return tables.sql(JUDGES.format(table="panel_verdicts"))


def calibration(tables: Tables) -> pa.Table:
    """`calibration`, by tenant."""
    return tables.sql(CALIBRATION)


def reliability(tables: Tables) -> pa.Table:
    """The reliability curve, by tenant and bin."""
    return tables.sql(RELIABILITY)


def stopping(tables: Tables) -> pa.Table:
    """`stopping`: a row for each tenant, none where every pair was judged by setting."""
    return tables.sql(STOPPING)


def pool_sizes(tables: Tables) -> pa.Table:
    """Candidates per query, queries without any included: min, mean, median, max. No row where there are no queries."""
    return tables.sql(POOL_SIZES)


def pool_found_by(tables: Tables) -> pa.Table:
    """Candidates by how many retrievers found them within the pool's depth, and their share of all (0 to 1)."""
    return tables.sql(POOL_FOUND_BY)


def labels(tables: Tables) -> pa.Table:
    """Queries and positives per split, with a last row `all`.

    mean, median and deviation (population standard deviation) are of positives per query, over the queries that have
    any; null where none has. Source: DevRev-Search, A.1.
    """
    return tables.sql(LABELS)


def triplets(tables: Tables, wanted: int) -> pa.Table:
    """Triplets per split and source, and how far their negatives fall short of `wanted` per positive."""
    return tables.sql(TRIPLETS, [wanted])


def audit_retrievers(tables: Tables) -> pa.Table:
    """`audit_retrievers`: all tenants together first, the best recall first."""
    return tables.sql(AUDIT_RETRIEVERS)


def audit_overlap(tables: Tables) -> pa.Table:
    """A matrix: of the positives that either of two retrievers found, the share that both found (Jaccard)."""
    return tables.sql(AUDIT_OVERLAP if tables.rows("audit_overlap") else "FROM audit_overlap")
