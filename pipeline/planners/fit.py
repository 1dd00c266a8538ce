"""What the log planner learns: which terms tell documents apart, and which of them users click for."""

from collections.abc import Iterator
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.planners.counting import count_into
from schemas.mined_tables import PLANNER_TERMS

FIT_PLANNER = Stage("fit_planner", 1, (), ("planner_terms",))

MIN_PAIR_TEXTS = 5
MIN_PAIR_DOCUMENTS = 2
MIN_NPMI = 0.5
SHRINKAGE = 10.0
MOST_LIFT = 2.0
BATCH = 1024
PART_ROWS = 200_000

# Normalised pointwise mutual information over the texts: 1 for words that are never apart, 0 for independent ones.
_PHRASES = f"""
    CREATE TABLE phrases AS
    WITH everything AS (
        SELECT *, true AS document FROM document_terms UNION ALL SELECT *, false AS document FROM log_terms
    ),
    totals AS (SELECT tenant, sum(n)::DOUBLE AS total FROM everything WHERE NOT pair GROUP BY tenant),
    words AS (SELECT tenant, term, sum(n)::DOUBLE AS n FROM everything WHERE NOT pair GROUP BY tenant, term),
    pairs AS (
        SELECT tenant, term, sum(n)::DOUBLE AS n FROM everything WHERE pair
        GROUP BY tenant, term
        HAVING count(*) >= {MIN_PAIR_TEXTS} AND count(*) FILTER (document) >= {MIN_PAIR_DOCUMENTS}
    )
    SELECT tenant, pairs.term
    FROM pairs JOIN totals USING (tenant)
    JOIN words AS a ON a.tenant = pairs.tenant AND a.term = split_part(pairs.term, ' ', 1)
    JOIN words AS b ON b.tenant = pairs.tenant AND b.term = split_part(pairs.term, ' ', 2)
    WHERE ln(pairs.n * total / (a.n * b.n)) >= {MIN_NPMI} * ln(total / pairs.n)
"""

_HELD = """
    CREATE TABLE {held} AS
    SELECT tenant, id, term FROM {terms} WHERE NOT pair OR (tenant, term) IN (FROM phrases)
"""

# A query and a document count once, however often they met: as clicked if ever clicked, as skipped if only shown.
_LIFT = f"""
    CREATE TABLE lifts AS
    WITH met AS (
        SELECT tenant, query_id, doc_id, sum(clicks) > 0 AS clicked FROM click_evidence WHERE date <= $through
        GROUP BY tenant, query_id, doc_id HAVING sum(clicks) > 0 OR sum(exposures) > 0
    ), looked AS (
        SELECT met.tenant, q.term, clicked, d.term IS NOT NULL AS holds
        FROM met JOIN held_by_queries AS q ON q.tenant = met.tenant AND q.id = met.query_id
        JOIN (SELECT DISTINCT tenant, id FROM held_by_documents) AS known
            ON known.tenant = met.tenant AND known.id = met.doc_id
        LEFT JOIN held_by_documents AS d ON d.tenant = met.tenant AND d.id = met.doc_id AND d.term = q.term
    ), counts AS (
        SELECT tenant, term, count(*) FILTER (clicked) AS clicks, count(*) FILTER (NOT clicked) AS skips,
            count(*) FILTER (clicked AND holds) AS clicks_holding,
            count(*) FILTER (NOT clicked AND holds) AS skips_holding
        FROM looked GROUP BY tenant, term
    ), shares AS (
        SELECT *, {SHRINKAGE} * (clicks_holding + skips_holding + 0.5) / (clicks + skips + 1) AS prior FROM counts
    )
    SELECT tenant, term,
        ((clicks_holding + prior) / (clicks + {SHRINKAGE})) / ((skips_holding + prior) / (skips + {SHRINKAGE})) AS lift
    FROM shares WHERE clicks > 0 AND skips > 0
"""

_WEIGHTS = f"""
    WITH n AS (SELECT tenant, count(*) AS n FROM documents GROUP BY tenant),
    frequencies AS (SELECT tenant, term, count(*) AS documents FROM held_by_documents GROUP BY tenant, term),
    terms AS (
        SELECT DISTINCT tenant, term FROM held_by_documents UNION SELECT DISTINCT tenant, term FROM held_by_queries
    ), learned AS (
        SELECT tenant, term, coalesce(documents, 0)::BIGINT AS documents, lift,
            ln((coalesce(n, 0) + 1) / (coalesce(documents, 0) + 0.5)) / ln((coalesce(n, 0) + 1) / 0.5) AS rarity
        FROM terms LEFT JOIN frequencies USING (tenant, term) LEFT JOIN n USING (tenant)
        LEFT JOIN lifts USING (tenant, term)
    )
    SELECT tenant, term, documents, round(lift, 6)::FLOAT AS lift,
        round(rarity ** (1 / greatest({1 / MOST_LIFT}, least({MOST_LIFT}, coalesce(lift, 1)))), 6)::FLOAT AS weight
    FROM learned ORDER BY tenant, term
"""


def fit_planner(tables: Tables, output: Output, *, through: date | None) -> None:
    """Learn the terms' weights from `documents`, and from `log_queries` and `click_evidence` up to a date.

    Rarity is ln((N + 1) / (documents that hold it + 0.5)) over its greatest value. Lift is how much oftener clicked
    documents hold the query's term than skipped ones, both shares shrunk to their common one by 10 documents. The
    weight is rarity ^ (1 / lift), lift within 1/2 and 2. A term that no document holds has rarity 1. Two words that
    often stand together, in two documents at least, are a term as well.

    Args:
        tables: holds the three tables.
        output: takes `planner_terms`.
        through: the last day that counts, or None: from the documents alone.
    """
    with tables.connect() as connection:
        count_into(connection, "document_terms", _documents(tables))
        count_into(connection, "log_terms", _queries(tables, through))
        connection.execute(_PHRASES)
        for held, terms in (("held_by_documents", "document_terms"), ("held_by_queries", "log_terms")):
            connection.execute(_HELD.format(held=held, terms=terms))
        connection.execute(_LIFT, {"through": through or date.min})
        learned = connection.sql(_WEIGHTS).to_arrow_table()
    for start in range(0, learned.num_rows, PART_ROWS):
        piece = learned.slice(start, PART_ROWS)
        output.write("planner_terms", PLANNER_TERMS.rows({name: piece[name] for name in piece.column_names}))
    output.count(FunnelStep("fit_planner", "documents", tables.rows("documents"), "terms", learned.num_rows))


def _documents(tables: Tables) -> Iterator[pa.Table]:
    """Title and text of each document."""
    for rows in tables.batches("documents", ["tenant", "doc_id", "title", "text"], BATCH):
        text = pc.binary_join_element_wise(pc.fill_null(rows["title"], ""), rows["text"], "\n")
        yield pa.table({"tenant": rows["tenant"], "id": rows["doc_id"], "text": text})


def _queries(tables: Tables, through: date | None) -> Iterator[pa.Table]:
    if through is None:
        return
    for rows in tables.batches("log_queries", ["tenant", "query_id", "text", "date"]):
        known = rows.filter(pc.less_equal(rows["date"], pa.scalar(through)))
        yield pa.table({"tenant": known["tenant"], "id": known["query_id"], "text": known["text"]})
