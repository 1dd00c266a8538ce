"""Test data from a later period: queries that training never saw, and a pool with documents that nothing pairs."""

from datetime import date

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.tables import pieces
from darklode.pipeline.base.relations import keep
from darklode.pipeline.mine.one_hop import OneHop
from darklode.schemas.tables import TABLES

TEST_SET = Stage(
    "mined_test",
    1,
    ("click_evidence", "log_queries", "relevance_evidence", "documents"),
    ("mined_test", "mined_test_pool"),
)

ROWS = 1 << 19

UNSEEN = "SELECT tenant, query_id FROM log_queries WHERE date >= CAST($test_from AS DATE)"

PAIRS = """
    WITH found AS (
        SELECT tenant, query_id, positive_id, 'click_one_hop' AS source, date FROM {click}
        UNION ALL
        SELECT tenant, query_id, positive_id, 'relevance_one_hop', date FROM {relevance}
        ANTI JOIN {click} USING (tenant, query_id, positive_id)
    )
    SELECT f.tenant, f.query_id, q.text AS query, f.positive_id AS doc_id, f.source, f.date
    FROM found f JOIN log_queries q USING (tenant, query_id)
    SEMI JOIN documents d ON d.tenant = f.tenant AND d.doc_id = f.positive_id
"""

POOL = """
    WITH paired AS (SELECT DISTINCT tenant, doc_id FROM {pairs}),
    others AS (
        SELECT tenant, doc_id FROM documents ANTI JOIN paired USING (tenant, doc_id)
        SEMI JOIN (SELECT DISTINCT tenant FROM paired) USING (tenant)
        QUALIFY $most IS NULL OR row_number() OVER (
            PARTITION BY tenant ORDER BY md5(concat_ws(chr(0), $seed, tenant, doc_id))
        ) <= $most
    )
    SELECT tenant, doc_id, true AS paired FROM paired UNION ALL SELECT tenant, doc_id, false FROM others
    ORDER BY tenant, doc_id
"""


def test_set(tables: Tables, output: Output, hop: OneHop, *, test_from: date | None, most: int | None) -> None:
    """Write the pairs of queries first searched on `test_from` or later, and the documents to retrieve them from.

    Args:
        tables: what the stage reads.
        output: takes `mined_test` and `mined_test_pool`.
        hop: makes the queries' own pairs, as for training but of all days.
        test_from: first day of the test period; None: there is no test set.
        most: unpaired documents of each tenant in the pool; None: all.

    Source: ScalingNote, 4.1.2.
    """
    if test_from is None:
        return
    with tables.connect() as connection:
        one_hop = hop.pairs(connection, keep(connection, UNSEEN, {"test_from": test_from}))
        pairs = keep(connection, PAIRS, **one_hop._asdict())
        ordered = f"FROM {pairs} ORDER BY tenant, query_id, doc_id"
        for rows in pieces(connection, ordered, {}, ROWS):
            output.write("mined_test", rows.cast(TABLES["mined_test"].schema))
        for rows in pieces(connection, POOL.format(pairs=pairs), {"most": most, "seed": hop.seed}, ROWS):
            output.write("mined_test_pool", rows.cast(TABLES["mined_test_pool"].schema))
    paired, pool = (sum(part.rows for part in output.parts[name]) for name in ("mined_test", "mined_test_pool"))
    output.count(FunnelStep("mined_test", "documents", tables.rows("documents"), "documents in the pool", pool))
    output.facts["pairs"] = paired
