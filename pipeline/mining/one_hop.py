"""What the log says of a query itself: the documents clicked for it, and what the ranker found for it."""

from dataclasses import dataclass

import duckdb

from schemas.mining import ClickSettings

# Rows are those of the queries in `needed`; $before is the day from which on the log is test data.
TOTALS = """
    CREATE OR REPLACE TEMP TABLE totals AS
    SELECT tenant, query_id, doc_id, sum(exposures) AS exposures, sum(clicks) AS clicks, sum(satisfied) AS satisfied,
           CAST(sum(CAST(expected AS DECIMAL(18, 9))) AS DOUBLE) AS expected,
           min(date) AS shown_on, min(date) FILTER (satisfied > 0) AS date,
           md5_number_lower(concat_ws(chr(0), $seed, tenant, query_id, doc_id)) AS lot
    FROM click_evidence SEMI JOIN needed USING (tenant, query_id)
    WHERE date < CAST($before AS DATE)
    GROUP BY tenant, query_id, doc_id
"""

CLICKED = """
    CREATE OR REPLACE TEMP TABLE clicked AS
    SELECT tenant, query_id, doc_id, date, lot FROM totals
    WHERE satisfied >= $min_clicks AND (expected IS NULL OR satisfied >= $min_ratio * expected)
"""

# The drawn negative of a positive is the one whose lot is nearest to the positive's: any is as likely, and a document
# shown later does not change the draw, only a click does.
CLICK_ONE_HOP = """
    CREATE OR REPLACE TEMP TABLE click_one_hop AS
    WITH skipped AS (
        SELECT tenant, query_id, doc_id, shown_on, lot FROM totals
        ANTI JOIN relevance_evidence r
          ON r.tenant = totals.tenant AND r.query_id = totals.query_id AND r.positive_id = totals.doc_id
        WHERE clicks = 0 AND exposures >= $min_exposures
    )
    SELECT c.tenant, c.query_id, c.doc_id AS positive_id, arg_min(s.doc_id, xor(c.lot, s.lot)) AS negative_id, c.date
    FROM clicked c LEFT JOIN skipped s
      ON s.tenant = c.tenant AND s.query_id = c.query_id AND s.shown_on <= c.date
    GROUP BY c.tenant, c.query_id, c.doc_id, c.date
"""

RELEVANCE_ONE_HOP = """
    CREATE OR REPLACE TEMP TABLE relevance_one_hop AS
    SELECT r.tenant, r.query_id, r.positive_id, r.positive_score, q.date,
           CASE WHEN t.doc_id IS NULL THEN r.negative_id END AS negative_id,
           CASE WHEN t.doc_id IS NULL THEN r.negative_score END AS negative_score
    FROM relevance_evidence r
    SEMI JOIN needed n ON n.tenant = r.tenant AND n.query_id = r.query_id
    JOIN log_queries q ON q.tenant = r.tenant AND q.query_id = r.query_id AND q.date < CAST($before AS DATE)
    LEFT JOIN (FROM totals WHERE clicks > 0) t
      ON t.tenant = r.tenant AND t.query_id = r.query_id AND t.doc_id = r.negative_id
"""


@dataclass(frozen=True)
class OneHop:
    """How the queries' own evidence becomes pairs.

    Args:
        settings: what counts as a positive and as a negative.
        before: ISO date; evidence from that day on is not looked at.
        seed: of the draws.

    Source: ScalingNote, 4.1.
    """

    settings: ClickSettings
    before: str
    seed: int

    def make(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the tables `click_one_hop` and `relevance_one_hop` of the queries in the table `needed`.

        Clicked documents are positives; each gets one document that was exposed by then and never clicked, drawn at
        random. The ranker's positive and negative are taken as they are, but for a negative that somebody clicked.

        Args:
            connection: with the views click_evidence, relevance_evidence and log_queries.
        """
        given = self.settings
        connection.execute(TOTALS, {"before": self.before, "seed": self.seed})
        connection.execute(CLICKED, {"min_clicks": given.min_clicks, "min_ratio": given.min_ratio})
        connection.execute(CLICK_ONE_HOP, {"min_exposures": given.min_exposures})
        connection.execute(RELEVANCE_ONE_HOP, {"before": self.before})
