"""What the log says of a query itself: the documents clicked for it, and what the ranker found for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb

from darklode.pipeline.base.relations import Relation, drop, keep
from darklode.schemas.mining import ClickSettings

# $before is the day from which on the log is test data. Decimals add up to the same sum in any order.
TOTALS = """
    SELECT tenant, query_id, doc_id, sum(exposures) AS exposures, sum(clicks) AS clicks, sum(satisfied) AS satisfied,
           CAST(sum(CAST(expected AS DECIMAL(18, 9))) AS DOUBLE) AS expected,
           min(date) AS shown_on, min(date) FILTER (satisfied > 0) AS date,
           md5_number_lower(concat_ws(chr(0), $seed, tenant, query_id, doc_id)) AS lot
    FROM click_evidence SEMI JOIN {queries} USING (tenant, query_id)
    WHERE date < CAST($before AS DATE)
    GROUP BY tenant, query_id, doc_id
"""

CLICKED = """
    SELECT tenant, query_id, doc_id, date, lot FROM {totals}
    WHERE satisfied >= $min_clicks AND (expected IS NULL OR satisfied >= $min_ratio * expected)
"""

# The drawn negative of a positive is the one whose lot is nearest to the positive's: any is as likely, and a document
# shown later does not change the draw, only a click does.
CLICK_PAIRS = """
    WITH skipped AS (
        SELECT tenant, query_id, doc_id, shown_on, lot FROM {totals} t
        ANTI JOIN relevance_evidence r
          ON r.tenant = t.tenant AND r.query_id = t.query_id AND r.positive_id = t.doc_id
        WHERE clicks = 0 AND exposures >= $min_exposures
    )
    SELECT c.tenant, c.query_id, c.doc_id AS positive_id, arg_min(s.doc_id, xor(c.lot, s.lot)) AS negative_id, c.date
    FROM {clicked} c LEFT JOIN skipped s
      ON s.tenant = c.tenant AND s.query_id = c.query_id AND s.shown_on <= c.date
    GROUP BY c.tenant, c.query_id, c.doc_id, c.date
"""

RELEVANCE_PAIRS = """
    SELECT r.tenant, r.query_id, r.positive_id, r.positive_score, q.date,
           CASE WHEN t.doc_id IS NULL THEN r.negative_id END AS negative_id,
           CASE WHEN t.doc_id IS NULL THEN r.negative_score END AS negative_score
    FROM relevance_evidence r
    SEMI JOIN {queries} n ON n.tenant = r.tenant AND n.query_id = r.query_id
    JOIN log_queries q ON q.tenant = r.tenant AND q.query_id = r.query_id AND q.date < CAST($before AS DATE)
    LEFT JOIN (FROM {totals} WHERE clicks > 0) t
      ON t.tenant = r.tenant AND t.query_id = r.query_id AND t.doc_id = r.negative_id
"""


class OneHopPairs(NamedTuple):
    """Pairs of queries by their own evidence; a negative may be null.

    Attributes:
        click: tenant, query_id, positive_id, negative_id, date.
        relevance: the same, and positive_score and negative_score.
    """

    click: Relation
    relevance: Relation


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

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that can change a pair."""
        return self.settings.decisive() | {"before": self.before, "seed": self.seed}

    def pairs(self, connection: duckdb.DuckDBPyConnection, queries: Relation) -> OneHopPairs:
        """Pair each query with the documents clicked for it, and with the one that the ranker put first.

        Clicked documents are positives; each gets one document that was exposed by then and never clicked, drawn at
        random. The ranker's positive and negative are taken as they are, but for a negative that somebody clicked.

        Args:
            connection: with the tables click_evidence, relevance_evidence and log_queries.
            queries: tenant and query_id.
        """
        given = self.settings
        totals = keep(connection, TOTALS, {"before": self.before, "seed": self.seed}, queries=queries)
        least = {"min_clicks": given.min_clicks, "min_ratio": given.min_ratio}
        clicked = keep(connection, CLICKED, least, totals=totals)
        exposed = {"min_exposures": given.min_exposures}
        click = keep(connection, CLICK_PAIRS, exposed, totals=totals, clicked=clicked)
        relevance = keep(connection, RELEVANCE_PAIRS, {"before": self.before}, queries=queries, totals=totals)
        drop(connection, totals, clicked)
        return OneHopPairs(click, relevance)
