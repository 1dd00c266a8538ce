"""The stage `mined_test`: test queries of a later period, their novelty, and a pool with distractors."""

from datetime import date

import duckdb

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.relations import Relation, materialize
from darklode.pipeline.mine.multi_hop import STRONGEST_PAIRS_SQL, LendingRules, find_loans, multi_hop
from darklode.pipeline.mine.one_hop import OneHop
from darklode.schemas.mining import AssociateSettings, MiningSettings
from darklode.schemas.tables import TABLES

TEST_SET = Stage(
    "mined_test",
    4,
    (
        "click_evidence",
        "click_prior",
        "log_queries",
        "query_clusters",
        "relevance_evidence",
        "associations",
        "documents",
        "triplets",
    ),
    ("mined_test", "mined_test_pool"),
)

# `_later_tables` restricts `click_evidence` to the test period.
TEST_QUERIES_SQL = "SELECT DISTINCT tenant, query_id FROM click_evidence"

# A lender from the training period would lend positives that the model was trained on.
LOANS_IN_TEST_PERIOD_SQL = """
    FROM {loans} SEMI JOIN (
        SELECT tenant, query_id AS via_query_id FROM log_queries WHERE date >= CAST($test_from AS DATE)
    ) USING (tenant, via_query_id)
    WHERE $borrow
"""

# Relevance pairs of training-period queries existed before the test period.
PAIRS_IN_TEST_PERIOD_SQL = "FROM {pairs} WHERE date >= CAST($test_from AS DATE)"

PAIRS_WITH_DOCUMENT_SQL = """
    SELECT p.tenant, p.query_id, q.text AS query, p.positive_id AS doc_id, p.source, p.date
    FROM {pairs} p JOIN log_queries q USING (tenant, query_id)
    SEMI JOIN documents d ON d.tenant = p.tenant AND d.doc_id = p.positive_id
"""

TEST_PAIRS_SQL = """
    WITH training_positives AS (SELECT DISTINCT tenant, positive_id AS doc_id FROM triplets WHERE split = 'train'),
    sharing_queries AS (
        SELECT DISTINCT tenant, query_id FROM {pairs} SEMI JOIN training_positives USING (tenant, doc_id)
    )
    SELECT p.tenant, p.query_id, p.query,
           CASE WHEN c.date < CAST($test_from AS DATE) THEN 'seen' WHEN n.date < CAST($test_from AS DATE) THEN 'variant'
                ELSE 'unseen' END AS kind,
           s.query_id IS NOT NULL AS shares_positive, p.doc_id, p.source, p.date
    FROM {pairs} p JOIN query_clusters c USING (tenant, query_id)
    LEFT JOIN query_clusters n ON n.tenant = c.tenant AND n.query_id = c.near_query_id
    LEFT JOIN sharing_queries s ON s.tenant = p.tenant AND s.query_id = p.query_id
"""

TEST_POOL_SQL = """
    WITH relevant AS (SELECT DISTINCT tenant, doc_id FROM {pairs}),
    distractors AS (
        SELECT tenant, doc_id FROM documents ANTI JOIN relevant USING (tenant, doc_id)
        SEMI JOIN (SELECT DISTINCT tenant FROM relevant) USING (tenant)
        QUALIFY $max_distractors IS NULL OR row_number() OVER (
            PARTITION BY tenant ORDER BY md5(concat_ws(chr(0), $seed, tenant, doc_id))
        ) <= $max_distractors
    )
    SELECT tenant, doc_id, true AS paired FROM relevant UNION ALL SELECT tenant, doc_id, false FROM distractors
    ORDER BY tenant, doc_id
"""


def test_set(
    tables: Tables, output: Output, hop: OneHop, settings: MiningSettings, *, apart: bool, lending: AssociateSettings
) -> None:
    """Write the pairs of queries searched on `test_from` or later, and the documents to retrieve from.

    Evidence is from the test period only. `kind` tells how new a query is: only `unseen` queries measure
    generalization.

    Args:
        tables: the tables that the stage reads.
        output: receives `mined_test` and `mined_test_pool`.
        hop: makes the queries' own pairs, as for training but of all days.
        settings: first day of the test period (None: no test set), whether its queries share evidence, and the number
            of distractors per tenant (None: all documents).
        apart: whether to drop queries that share a positive with training.
        lending: what queries of the test period lend each other.

    Source: ScalingNote, 4.1.2.
    """
    if settings.test_from is None:
        return
    rules = LendingRules(lending.max_lenders_per_query, "all", lending.rule == "guarded")
    period = {"test_from": settings.test_from}
    with _later_tables(tables, settings.test_from).connect() as connection:
        test_queries = materialize(connection, TEST_QUERIES_SQL)
        loan_parameters = {**period, "borrow": settings.test_multi_hop}
        all_loans = find_loans(connection, test_queries, before=hop.before)
        loans = materialize(connection, LOANS_IN_TEST_PERIOD_SQL, loan_parameters, loans=all_loans)
        all_pairs = multi_hop(connection, test_queries, loans, hop, rules)
        later = materialize(connection, PAIRS_IN_TEST_PERIOD_SQL, period, pairs=all_pairs)
        strongest = materialize(connection, STRONGEST_PAIRS_SQL, pairs=later)
        test_pairs = materialize(connection, PAIRS_WITH_DOCUMENT_SQL, pairs=strongest)
        pairs = materialize(connection, TEST_PAIRS_SQL, period, pairs=test_pairs)
        output.count(_funnel_step(connection, test_queries, pairs, apart=apart))
        if apart:
            connection.execute(f"DELETE FROM {pairs} WHERE shares_positive")
        columns = ", ".join(TABLES["mined_test"].schema.names)
        ordered_sql = f"SELECT {columns} FROM {pairs} ORDER BY tenant, query_id, doc_id"
        output.write_answer("mined_test", connection, ordered_sql, {})
        pool_parameters = {"max_distractors": settings.test_pool_size, "seed": hop.seed}
        output.write_answer("mined_test_pool", connection, TEST_POOL_SQL.format(pairs=pairs), pool_parameters)
    n_pairs, n_pool = (sum(part.rows for part in output.parts[name]) for name in ("mined_test", "mined_test_pool"))
    output.count(FunnelStep("mined_test_pool", "documents", tables.rows("documents"), "documents in the pool", n_pool))
    output.facts["pairs"] = n_pairs


def _later_tables(tables: Tables, first: date) -> Tables:
    """Restrict the tables to evidence of that day and later."""
    days = tables.by_day("click_evidence")
    later = [part for day, parts in days.items() if day >= first.isoformat() for part in parts]
    return tables.with_parts("click_evidence", later)


def _funnel_step(
    connection: duckdb.DuckDBPyConnection, test_queries: Relation, pairs: Relation, *, apart: bool
) -> FunnelStep:
    """Build the funnel step: queries of the period in, queries with pairs out."""
    paired_sql = f"SELECT DISTINCT tenant, query_id, shares_positive FROM {pairs}"
    counts_sql = (
        f"SELECT (SELECT count(*) FROM {test_queries}), count(*), count(*) FILTER (shares_positive) FROM ({paired_sql})"
    )
    n_queries, n_found, n_sharing = map(int, connection.sql(counts_sql).fetchall()[0])
    n_dropped = n_sharing if apart else 0
    dropped = {"no relevant document": n_queries - n_found, "shares a positive with training": n_dropped}
    dropped = {reason: rows for reason, rows in dropped.items() if rows}
    return FunnelStep("mined_test", "queries of the test period", n_queries, "queries", n_found - n_dropped, dropped)
