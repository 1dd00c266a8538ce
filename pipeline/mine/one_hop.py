"""One-hop pairs: pairs of a query and a relevant document, from the query's own evidence (ScalingNote, 4.1).

The evidence is clicks (the documents that its users clicked) and relevance (the document that the ranker scored
highest). `multi_hop` adds the evidence of associated queries.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import duckdb

from darklode.pipeline.base.relations import Relation, drop, materialize
from darklode.schemas.mining import ClickSettings

# $before is the first day of the test period. `hash`, of seed and row, serves as a random number that is the same on
# every machine. Sums of decimals do not depend on the order of summation.
# Only evidence of sessions of the query's own split counts (`counts`), but any click rules a negative out.
CLICK_TOTALS_SQL = """
    SELECT tenant, query_id, doc_id, sum(exposures) FILTER (counts) AS exposures, sum(clicks) AS clicks,
           coalesce(sum(satisfied) FILTER (counts), 0) AS satisfied,
           CAST(sum(CAST(expected AS DECIMAL(18, 9))) FILTER (counts) AS DOUBLE) AS expected,
           CAST(sum(CAST(examinations AS DECIMAL(18, 9))) FILTER (counts) AS DOUBLE) AS examinations,
           min(date) FILTER (counts) AS shown_on, min(date) FILTER (counts AND satisfied > 0) AS date,
           arg_min(depth, {{'date': date, 'depth': depth}}) FILTER (counts) > 0.5 AS is_low,
           min(date) FILTER (counts AND depth <= 0.5) AS shown_high_on,
           md5_number_lower(concat_ws(chr(0), $seed, tenant, query_id, doc_id)) AS hash
    FROM {evidence} WHERE date < CAST($before AS DATE)
    GROUP BY tenant, query_id, doc_id
"""

# Evidence of the queries, and whether it counts.
ALL_EVIDENCE_SQL = "(SELECT *, true AS counts FROM click_evidence SEMI JOIN {queries} USING (tenant, query_id))"
EVIDENCE_OF_SPLIT_SQL = """(
    SELECT e.*, e.session_split IS NULL OR e.session_split = c.split AS counts
    FROM (FROM click_evidence SEMI JOIN {queries} USING (tenant, query_id)) e
    JOIN query_clusters c USING (tenant, query_id)
)"""

# Lower confidence bound of clicks ÷ expected clicks: the Wilson-Hilferty approximation of a gamma quantile, $deviate
# being the normal quantile. Within 6 % of the exact value up to a confidence of 0.9 if there is a click.
RATIO_LOWER_BOUND_SQL = """
    (p.shape + satisfied) / (p.rate + expected) * pow(greatest(0, 1 - 1 / (9 * (p.shape + satisfied))
        + CAST($deviate AS DOUBLE) / (3 * sqrt(p.shape + satisfied))), 3)
"""

CLICKED_POSITIVES_SQL = f"""
    SELECT tenant, query_id, doc_id AS positive_id, date, hash FROM {{totals}} LEFT JOIN click_prior p USING (tenant)
    WHERE satisfied >= $min_clicks AND coalesce({RATIO_LOWER_BOUND_SQL} >= $min_ratio, true)
"""

SKIPPED_DOCUMENTS_SQL = """
    SELECT tenant, query_id, doc_id, shown_on, coalesce(is_low, false) AS is_low, hash FROM {totals} t
    ANTI JOIN relevance_evidence r
      ON r.tenant = t.tenant AND r.query_id = t.query_id AND r.positive_id = t.doc_id
    WHERE clicks = 0 AND coalesce(examinations, exposures) >= $min_exposures
"""

# Any click, however short, rules a document out as a ranker's negative.
CLICKED_DOCUMENTS_SQL = "SELECT tenant, query_id, doc_id FROM {totals} WHERE clicks > 0"

# Documents of the upper half of a result list, with the first day there.
HIGH_DOCUMENTS_SQL = "SELECT tenant, query_id, doc_id, shown_high_on FROM {totals} WHERE shown_high_on IS NOT NULL"

# A positive's negative is the candidate whose random number is nearest by XOR: every candidate is equally likely, and a
# new candidate changes the choice only if it is nearer. With $by_day, candidates shown by the positive's day come
# first; with $prefer_low, then those that were in the lower half of the result list when they were first shown.
NEGATIVE_ORDER_SQL = """{{
    'day': CASE WHEN $by_day THEN greatest(s.shown_on, c.date) ELSE c.date END,
    'is_high': $prefer_low AND NOT s.is_low, 'distance': xor(c.hash, s.hash), 'id': s.doc_id
}}"""

CLICK_PAIRS_SQL = f"""
    SELECT tenant, query_id, c.positive_id, arg_min(s.doc_id, {NEGATIVE_ORDER_SQL}) AS negative_id, c.date, c.hash
    FROM {{clicked}} c LEFT JOIN {{skipped}} s USING (tenant, query_id)
    GROUP BY tenant, query_id, c.positive_id, c.date, c.hash
"""

RELEVANCE_PAIRS_SQL = """
    WITH clicked_lists AS (
        SELECT tenant, query_id, list(doc_id) AS clicked_ids FROM {clicked_documents} GROUP BY tenant, query_id
    ), unclicked AS (
        SELECT r.tenant, r.query_id, r.positive_id, r.positive_score, q.date,
               list_filter(list_zip(r.negative_ids, r.negative_scores),
                           lambda candidate: NOT list_contains(coalesce(clicked_ids, []), candidate[1])) AS negatives
        FROM relevance_evidence r
        SEMI JOIN {queries} n ON n.tenant = r.tenant AND n.query_id = r.query_id
        JOIN log_queries q ON q.tenant = r.tenant AND q.query_id = r.query_id AND q.date < CAST($before AS DATE)
        LEFT JOIN clicked_lists l ON l.tenant = r.tenant AND l.query_id = r.query_id
    )
    SELECT *, negatives[1][1] AS negative_id, negatives[1][2] AS negative_score FROM unclicked
"""

UNPAIRED_QUERIES_SQL = "FROM {queries} ANTI JOIN {paired_queries} USING (tenant, query_id)"

# The same choice as for the first negative, but without the documents in {excluded}: a click pair takes the candidate
# nearest by XOR, a relevance pair the first candidate of its list.
REDRAWN_NEGATIVES_SQL = f"""
    SELECT p.tenant, p.query_id, p.positive_id, p.source, arg_min(s.doc_id, {NEGATIVE_ORDER_SQL}) AS negative_id,
           CAST(NULL AS FLOAT) AS negative_score
    FROM {{contradicted}} p
    JOIN {{click_pairs}} c ON c.tenant = p.tenant AND c.query_id = p.evidence_query_id AND c.positive_id = p.positive_id
    JOIN {{skipped}} s ON s.tenant = p.tenant AND s.query_id = p.evidence_query_id
    ANTI JOIN {{excluded}} a ON a.tenant = p.tenant AND a.query_id = p.query_id AND a.doc_id = s.doc_id
    WHERE p.source LIKE 'click%'
    GROUP BY p.tenant, p.query_id, p.positive_id, p.source
    UNION ALL
    SELECT n.tenant, n.query_id, n.positive_id, n.source, arg_min(n.candidate[1], n.list_position),
           arg_min(n.candidate[2], n.list_position)
    FROM (
        SELECT p.*, unnest(r.negatives) AS candidate, generate_subscripts(r.negatives, 1) AS list_position
        FROM {{contradicted}} p
        JOIN {{relevance_pairs}} r
          ON r.tenant = p.tenant AND r.query_id = p.evidence_query_id AND r.positive_id = p.positive_id
        WHERE p.source LIKE 'relevance%'
    ) n
    ANTI JOIN {{excluded}} a ON a.tenant = n.tenant AND a.query_id = n.query_id AND a.doc_id = n.candidate[1]
    GROUP BY n.tenant, n.query_id, n.positive_id, n.source
"""


class OneHopPairs(NamedTuple):
    """Pairs from queries' own evidence, and the candidates from which another negative can be chosen.

    A pair without a candidate has a null `negative_id`. `hash` is the random number by which negatives are chosen.

    Attributes:
        queries: the queries paired, with the columns tenant, query_id.
        click_pairs: pairs from clicks: tenant, query_id, positive_id, negative_id, date, hash.
        relevance_pairs: pairs from the ranker: tenant, query_id, positive_id, positive_score, negative_id,
            negative_score, date, and `negatives`: all candidates as (id, score), in random order.
        skipped: negative candidates for pairs from clicks, exposed but never clicked: tenant, query_id, doc_id,
            shown_on, is_low (first shown in the lower half of the result list), hash.
        clicked_documents: documents with any click: tenant, query_id, doc_id.
        high_documents: documents shown in the upper half of a result list: tenant, query_id, doc_id, shown_high_on.
    """

    queries: Relation
    click_pairs: Relation
    relevance_pairs: Relation
    skipped: Relation
    clicked_documents: Relation
    high_documents: Relation


@dataclass(frozen=True)
class OneHop:
    """Makes pairs from queries' own evidence.

    Args:
        settings: what counts as a positive and as a negative.
        before: first day of the test period, as an ISO date; evidence of that day and later is ignored.
        seed: seed for the random choice of negatives; another seed changes the negatives, not the positives.
        by_session: only sessions of a query's own split are evidence for it; then the table query_clusters is read.
        previous: pairs of some of the queries, already computed; `pairs` adds the pairs of the other queries to these
            relations.

    Source: ScalingNote, 4.1.
    """

    settings: ClickSettings
    before: str
    seed: int
    by_session: bool = False
    previous: OneHopPairs | None = None

    @property
    def identity(self) -> Mapping[str, Any]:
        """All settings that can change a pair, for fingerprints."""
        return self.settings.decisive() | {
            "before": self.before,
            "seed": self.seed,
            "by_session": self.by_session,
        }

    def pairs(self, connection: duckdb.DuckDBPyConnection, queries: Relation) -> OneHopPairs:
        """Pair each query with its clicked documents, and with the ranker's best document.

        Each clicked positive gets one random negative that was exposed but never clicked: from all days, or with
        `negative_window: day` from the days up to the click, else from the next day with a candidate; with
        `negatives: lower_half` from the lower half of the result lists as long as there is one. The ranker's
        negative is the first candidate, in random order, that nobody clicked.

        Args:
            connection: a connection with the tables click_evidence, click_prior, relevance_evidence and log_queries.
            queries: the queries to pair, with the columns tenant and query_id.

        Source: ScalingNote, 4.1. Bound on clicks ÷ expected clicks: DuMouchel (1999); its quantile: Wilson and Hilferty
        (1931).
        """
        if self.previous is None:
            return self._make_pairs(connection, queries)
        remaining_queries = materialize(
            connection, UNPAIRED_QUERIES_SQL, queries=queries, paired_queries=self.previous.queries
        )
        remaining_pairs = self._make_pairs(connection, remaining_queries)
        # All relations but the first, `queries`, which the caller's `queries` replaces.
        for previous_relation, remaining_relation in zip(self.previous[1:], remaining_pairs[1:], strict=True):
            connection.execute(f"INSERT INTO {previous_relation} FROM {remaining_relation}")
        drop(connection, self.previous.queries, *remaining_pairs)
        return self.previous._replace(queries=queries)

    def _make_pairs(self, connection: duckdb.DuckDBPyConnection, queries: Relation) -> OneHopPairs:
        """Pair all queries, ignoring `previous`."""
        settings = self.settings
        evidence_sql = EVIDENCE_OF_SPLIT_SQL if self.by_session else ALL_EVIDENCE_SQL
        totals_sql = CLICK_TOTALS_SQL.replace("{evidence}", evidence_sql)
        totals = materialize(connection, totals_sql, {"before": self.before, "seed": self.seed}, queries=queries)
        positive_thresholds = {
            "min_clicks": settings.min_clicks,
            "min_ratio": settings.min_click_ratio,
            "deviate": NormalDist().inv_cdf(1 - settings.confidence),
        }
        clicked = materialize(connection, CLICKED_POSITIVES_SQL, positive_thresholds, totals=totals)
        skipped = materialize(
            connection, SKIPPED_DOCUMENTS_SQL, {"min_exposures": settings.min_exposures}, totals=totals
        )
        clicked_documents = materialize(connection, CLICKED_DOCUMENTS_SQL, totals=totals)
        high_documents = materialize(connection, HIGH_DOCUMENTS_SQL, totals=totals)
        click_pairs = materialize(
            connection, CLICK_PAIRS_SQL, self._negative_parameters, clicked=clicked, skipped=skipped
        )
        relevance_pairs = materialize(
            connection,
            RELEVANCE_PAIRS_SQL,
            {"before": self.before},
            queries=queries,
            clicked_documents=clicked_documents,
        )
        drop(connection, totals, clicked)
        return OneHopPairs(queries, click_pairs, relevance_pairs, skipped, clicked_documents, high_documents)

    def redraw_negatives(
        self, connection: duckdb.DuckDBPyConnection, pairs: OneHopPairs, contradicted: Relation, excluded: Relation
    ) -> Relation:
        """Choose other negatives for pairs whose negative is known to be relevant.

        Args:
            connection: a connection that holds the relations.
            pairs: the result of the method `pairs` for all queries in `evidence_query_id`.
            contradicted: pairs that need another negative: tenant, query_id, positive_id, source, and
                `evidence_query_id`, the query whose evidence made the pair.
            excluded: documents that must not be negatives of a query: tenant, query_id, doc_id.

        Returns:
            tenant, query_id, positive_id, source, negative_id, negative_score. A pair without another candidate has no
            row.
        """
        return materialize(
            connection,
            REDRAWN_NEGATIVES_SQL,
            self._negative_parameters,
            contradicted=contradicted,
            excluded=excluded,
            **pairs._asdict(),
        )

    @property
    def _negative_parameters(self) -> dict[str, object]:
        """SQL parameters of `NEGATIVE_ORDER_SQL`."""
        return {
            "by_day": self.settings.negative_window == "day",
            "prefer_low": self.settings.negatives == "lower_half",
        }
