"""The triplets to doubt first: those whose judge was least sure, or contradicts them."""

import duckdb
import pyarrow as pa

from pipeline.report.source import Source
from pipeline.report.thresholds import thresholds

FIRST_LOOK = 1000
WIDER = 100

# A margin is how far a label is on its side of the threshold: small is doubtful, negative contradicts.
NEAREST = """
    SELECT v.tenant, v.query_id, v.chunk_id, v.relevant, v.probability, t.threshold,
           CASE WHEN v.relevant THEN v.probability - t.threshold ELSE t.threshold - v.probability END AS margin
    FROM verdicts v JOIN thresholds t ON t.tenant IS NULL OR t.tenant = v.tenant
    JOIN queries q ON q.tenant = v.tenant AND q.query_id = v.query_id
    WHERE v.relevant IS NOT NULL AND v.probability IS NOT NULL AND q.split <> 'test'
    ORDER BY margin, v.tenant, v.query_id, v.chunk_id LIMIT $most
"""

FOUND = """
    SELECT n.*, min(t.triplet_id) AS triplet_id FROM near n
    JOIN triplets t ON t.tenant = n.tenant AND t.query_id = n.query_id
        AND CASE WHEN n.relevant THEN t.positive_id = n.chunk_id ELSE list_contains(t.negative_ids, n.chunk_id) END
    GROUP BY ALL ORDER BY margin, n.tenant, n.query_id, n.chunk_id LIMIT $wanted
"""

REFUTED = """
    SELECT v.tenant, v.query_id, v.positive_id AS chunk_id, true AS relevant, v.probability, h.threshold,
           v.probability - h.threshold AS margin, t.triplet_id
    FROM mined_verdicts v JOIN triplets t USING (tenant, query_id, positive_id), thresholds h
    WHERE v.probability IS NOT NULL ORDER BY margin, v.tenant, v.query_id, v.positive_id LIMIT $wanted
"""


def doubtful(source: Source, connection: duckdb.DuckDBPyConnection, wanted: int) -> pa.Table:
    """Tenant, query_id, chunk_id, relevant, probability, threshold, margin and triplet_id, the smallest margin first.

    A pair is named once, with the first of the triplets that hold it. The pairs of the smallest margins are looked up
    among the triplets, ever more of them until enough are found: the answer is exact, and no join is as large as the
    triplets with all their negatives.

    Args:
        source: the run; mined triplets are doubted where the judge looked at them (`mined_verdicts`).
        connection: to its tables.
        wanted: pairs at most.
    """
    connection.register("thresholds", thresholds(source))
    if source.mined:
        return connection.sql(REFUTED, params={"wanted": wanted}).to_arrow_table()
    most, pairs = FIRST_LOOK, source.tables.rows("verdicts")
    while True:
        connection.register("near", connection.sql(NEAREST, params={"most": most}).to_arrow_table())
        found: pa.Table = connection.sql(FOUND, params={"wanted": wanted}).to_arrow_table()
        if found.num_rows == wanted or most >= pairs:
            return found
        most *= WIDER
