"""SQL of human labels: the majority of a pair's reviewers, and the weight of each label of the sample."""

# The grade of a relevant pair is the (lower) median of the relevant grades.
MAJORITY_LABELS_SQL = """
    SELECT tenant, query_id, chunk_id, yes, no, shown,
           CASE WHEN yes > no THEN grade WHEN no > yes THEN 0 END AS relevance
    FROM (
        SELECT tenant, query_id, chunk_id, bool_or(judge_shown) AS shown, count(*) FILTER (relevance > 0) AS yes,
               count(*) FILTER (relevance = 0) AS no,
               quantile_disc(relevance, 0.5) FILTER (relevance > 0) AS grade
        FROM reviews GROUP BY tenant, query_id, chunk_id
    )
"""

# Number of pairs of the stratum ÷ labels of the stratum, because an unfinished review has labels of a part of the
# sample only; null outside the sample.
WEIGHTED_LABELS_SQL = f"""
    SELECT tenant, query_id, chunk_id, relevance, r.stratum,
           r.weight * r.sampled / count(r.stratum) OVER (PARTITION BY r.stratum) AS weight
    FROM ({MAJORITY_LABELS_SQL}) LEFT JOIN review_sample r USING (tenant, query_id, chunk_id)
    WHERE relevance IS NOT NULL ORDER BY tenant, query_id, chunk_id
"""
