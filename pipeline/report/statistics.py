"""Statistics of a run as small Arrow tables, for the dataset card, the report and the terminal."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.report.statistic import Statistic

VERDICT_COUNTS_SQL = """
    SELECT judge_id, count(*) AS verdicts,
           count(*) FILTER (relevant) AS relevant,
           count(*) FILTER (NOT relevant) AS not_relevant,
           count(*) FILTER (relevant IS NULL) AS unreadable,
           CASE WHEN count(contradicted) > 0 THEN count(*) FILTER (contradicted) END AS contradicted
    FROM {table} GROUP BY judge_id ORDER BY judge_id
"""
"""Counts of verdicts by judge; {table} is `verdicts` or `panel_verdicts`. A null verdict is unreadable."""

sizes = Statistic("""
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
""")
"""Numbers of documents, chunks, raw queries and queries per tenant."""

funnel = Statistic("SELECT * EXCLUDE (position) FROM funnel ORDER BY position, reason NULLS FIRST")
"""The table `funnel`: rows into and out of each step, and drops by reason, in the order of the steps."""

cleaning = Statistic("""
    SELECT substr(step, 7) AS rule, CAST(sum(dropped) AS BIGINT) AS dropped,
           round(sum(dropped) / nullif(any_value(rows_in), 0), 3) AS share,
           CASE step WHEN 'clean.noise' THEN 'clean.noise'
                     WHEN 'clean.language' THEN 'clean.language, clean.language_threshold'
                     WHEN 'clean.length' THEN 'clean.min_percentile, clean.max_percentile'
                     WHEN 'clean.duplicates' THEN 'clean.deduplicate'
                     ELSE 'clean.max_per_cluster, clean.n_clusters' END AS settings
    FROM funnel WHERE step LIKE 'clean.%' GROUP BY position, step ORDER BY position
""")
"""Queries dropped by each cleaning rule, their share of the rule's input, and the settings that control the rule."""


def sampling_note(run: Run) -> str:
    """Sentence on how far the queries dropped by cluster sampling are from the kept ones; empty if it dropped none.

    Args:
        run: a run; without a finished stage `clean`, the sentence is empty.
    """
    manifest = run.manifests().get("clean")
    if manifest is None or "mean_distance" not in manifest.facts:
        return ""
    return (
        f"Queries dropped by clean.diversity have a mean cosine distance of {manifest.facts['mean_distance']:.2f} to "
        "the kept query of their cluster; n_represented counts only those with the same words."
    )


languages = Statistic("""
    SELECT language FROM cleaned_queries WHERE language_score >= $1 GROUP BY language
    HAVING count(*) >= 0.05 * (SELECT count(*) FROM cleaned_queries WHERE language_score >= $1)
    ORDER BY count(*) DESC, language
""")
"""Languages of at least 5 % of the kept queries whose language is certain (probability of at least `$1`)."""

missing_probabilities = Statistic("""
    SELECT no_probability AS reason, count(*) AS verdicts,
           (SELECT count(*) FROM verdicts WHERE relevant IS NOT NULL) AS labels
    FROM verdicts WHERE relevant IS NOT NULL AND probability IS NULL AND no_probability IS NOT NULL
    GROUP BY no_probability ORDER BY verdicts DESC, reason
""")
"""Labels without a probability, counted by reason; `labels` is the number of all labels."""

judges = Statistic(VERDICT_COUNTS_SQL.format(table="verdicts"))
"""Verdicts per judge_id: relevant, not_relevant and unreadable ones.

`contradicted` counts labels that the log-probabilities contradict; null for judges without log-probabilities.
"""

members = Statistic(VERDICT_COUNTS_SQL.format(table="panel_verdicts"))
"""The same counts as `judges`, for the single members of a panel of judges."""

calibration = Statistic("SELECT * FROM calibration ORDER BY tenant")
"""The table `calibration`: how well the judge's probabilities agree with human labels, a row per tenant."""

reliability = Statistic("SELECT * FROM reliability ORDER BY tenant, bin")
"""The table `reliability`: points of the reliability curve, a row per tenant and bin of probabilities."""

stopping = Statistic("SELECT * FROM stopping ORDER BY tenant")
"""The table `stopping`: pairs judged and positives missed when adaptive judging stopped, a row per tenant."""

pool_sizes = Statistic("""
    SELECT count(*) AS queries, min(n) AS min, avg(n) AS mean, median(n) AS median, max(n) AS max FROM (
        SELECT count(chunk_id) AS n FROM queries LEFT JOIN pool USING (tenant, query_id) GROUP BY tenant, query_id
    ) HAVING count(*) > 0
""")
"""Candidates per query, including queries without any: min, mean, median, max. Empty if there are no queries."""

pool_found_by = Statistic("""
    SELECT len(retrievers) AS retrievers, count(*) AS candidates, count(*) / sum(count(*)) OVER () AS share
    FROM pool GROUP BY len(retrievers) ORDER BY len(retrievers)
""")
"""Candidates by number of retrievers that found them within the pool's depth, and their share (0 to 1)."""

# The deviation is computed from integers: the last digits of stddev_pop depend on the order of the rows.
labels = Statistic("""
    WITH positives_per_query AS (
        SELECT split, count(*) FILTER (relevance > 0) AS n
        FROM queries LEFT JOIN qrels USING (tenant, query_id) GROUP BY tenant, query_id, split
    )
    SELECT coalesce(split, 'all') AS split, count(*) AS queries,
           count(*) FILTER (n > 0) AS with_positives, count(*) FILTER (n = 0) AS without_positives,
           CAST(sum(n) AS BIGINT) AS positives,
           avg(n) FILTER (n > 0) AS mean, median(n) FILTER (n > 0) AS median,
           sqrt(CAST(sum(n * n) FILTER (n > 0) * count(*) FILTER (n > 0)
                     - sum(n) FILTER (n > 0) * sum(n) FILTER (n > 0) AS DOUBLE))
               / nullif(count(*) FILTER (n > 0), 0) AS deviation
    FROM positives_per_query GROUP BY ROLLUP (split) HAVING count(*) > 0
    ORDER BY array_position(['train', 'validation', 'test'], positives_per_query.split) NULLS LAST
""")
"""Queries and positives per split, with a last row `all`.

mean, median and deviation (population standard deviation) describe positives per query, over the queries that have at
least one; they are null if no query has one. The figures are those of DevRev-Search, appendix A.1.
"""

triplets = Statistic("""
    SELECT split, source, count(*) AS rows, count(DISTINCT (tenant, query_id)) AS queries,
           avg(len(negatives)) AS mean_negatives, min(len(negatives)) AS min_negatives,
           count(*) FILTER (len(negatives) < $1) AS short_rows,
           CAST(sum($1 - least(len(negatives), $1)) AS BIGINT) AS missing_negatives
    FROM triplets GROUP BY split, source
    ORDER BY array_position(['train', 'validation'], split), source
""")
"""Triplets per split and source, with their numbers of negatives.

`$1` is the wanted number of negatives: `short_rows` counts triplets with fewer, `missing_negatives` sums the shortfall.
"""

audit_retrievers = Statistic("SELECT * FROM audit_retrievers ORDER BY tenant NULLS FIRST, recall DESC, retriever")
"""The table `audit_retrievers`, with the rows of all tenants together first, and best recall first."""

RECALL_AT_10_SQL = """
    WITH positives AS (SELECT tenant, query_id, chunk_id FROM qrels WHERE relevance > 0),
    answered_queries AS (SELECT tenant, query_id, count(*) AS positives FROM positives GROUP BY ALL),
    recalls AS (
        SELECT retriever, positives, count(*) / positives AS recall_sum
        FROM positives JOIN (FROM rankings WHERE rank <= 10) USING (tenant, query_id, chunk_id)
        JOIN answered_queries USING (tenant, query_id) GROUP BY retriever, positives
    )
    SELECT retriever,
           coalesce(list_sum(list(recall_sum ORDER BY positives)), 0)
               / nullif((SELECT count(*) FROM answered_queries), 0) AS recall
    FROM (SELECT DISTINCT retriever FROM rankings) LEFT JOIN recalls USING (retriever)
    GROUP BY retriever ORDER BY retriever
"""
"""Recall@10 of each retriever, averaged over queries with a positive.

Sums of recalls are added in the order of the number of positives: the last digits of a float sum depend on the order.
In a small corpus, recall at the pool's depth does not distinguish retrievers: each list contains much of the corpus.
"""

audit_with_recall_at_10 = Statistic(f"""
    SELECT audited.*, CASE WHEN tenant IS NULL THEN shallow_recalls.recall END AS recall_at_10
    FROM audit_retrievers audited LEFT JOIN ({RECALL_AT_10_SQL}) shallow_recalls USING (retriever)
    ORDER BY tenant IS NOT NULL, max(queries) OVER (PARTITION BY tenant) DESC, tenant, audited.recall DESC, retriever
""")
"""The table `audit_retrievers` with Recall@10 over all tenants (null for single tenants); largest tenants first."""

OVERLAP_MATRIX_SQL = """
    PIVOT (SELECT retriever, other, jaccard FROM audit_overlap) ON other USING first(jaccard) ORDER BY retriever
"""


def audit_overlap(tables: Tables) -> pa.Table:
    """Matrix of the overlap of retrievers: the Jaccard index of the sets of positives that two of them found.

    Args:
        tables: `duckdb_views.all_tables` of an audited run. Without rows in `audit_overlap` the result is empty.
    """
    # PIVOT needs at least one row to make columns from.
    return tables.sql(OVERLAP_MATRIX_SQL if tables.rows("audit_overlap") else "FROM audit_overlap")


held_out = Statistic("""
    SELECT split, kind, count(*) AS queries, count(*) FILTER (shares_positive) AS share_a_positive,
           count(*) FILTER (shares_positive) / count(*) AS share
    FROM held_out LEFT JOIN (SELECT DISTINCT tenant, query_id, 'test' AS split, kind FROM mined_test)
    USING (tenant, query_id, split) GROUP BY split, kind ORDER BY split, kind
""")
"""Validation and test queries by split and kind, and how many of them share a positive with a training query."""

leakage = Statistic(
    "SELECT measure, train, validation, shared, shared / nullif(validation, 0) AS share_in_train FROM split_leakage"
)
"""What training and validation share; the last column is the share of validation."""

# Statistics of mined runs.

triplet_tiers = Statistic("""
    SELECT source, split, tier, count(*) AS triplets, count(DISTINCT tenant || chr(0) || query_id) AS queries,
           count(*) FILTER (len(negative_ids) = 0) AS without_negative
    FROM triplets GROUP BY ALL ORDER BY ALL
""")
"""Triplets of mined runs by source, split and tier (training sets of increasing size: small, median, large)."""

triplet_sources = Statistic("""
    SELECT source, count(*) AS triplets, count(*) FILTER (split = 'train') AS train,
           count(*) FILTER (split = 'validation') AS validation,
           count(*) FILTER (len(negative_ids) = 0) AS without_negative,
           count(DISTINCT tenant || chr(0) || query_id) AS queries
    FROM triplets GROUP BY source ORDER BY source
""")
"""Triplets of mined runs by source: totals, per split, and those without a negative."""

days = Statistic("""
    SELECT date, tenant, state, rows, array_to_string(reasons, '; ') AS reasons, decided_at, note
    FROM log_days WHERE state <> 'admitted' OR len(reasons) > 0 ORDER BY date DESC, tenant
""")
"""Days of the log that are held back, discarded, accepted or missing, or have remarks; newest first."""

nights = Statistic("""
    WITH evidence AS (
        SELECT date, sum(exposures) AS exposures, sum(clicks) AS clicks, count(DISTINCT query_id) AS queries
        FROM click_evidence GROUP BY date
    ), new_query_counts AS (SELECT date, count(*) AS new_queries FROM log_queries GROUP BY date),
    pairs AS (
        SELECT date, count(*) FILTER (source = 'click_one_hop') AS click_one_hop,
               count(*) FILTER (source = 'click_multi_hop') AS click_multi_hop,
               count(*) FILTER (source = 'relevance_one_hop') AS relevance_one_hop,
               count(*) FILTER (source = 'relevance_multi_hop') AS relevance_multi_hop
        FROM mined_pairs GROUP BY date
    )
    SELECT date, CAST(exposures AS BIGINT) AS exposures, CAST(clicks AS BIGINT) AS clicks, queries,
           coalesce(new_queries, 0) AS new_queries, coalesce(click_one_hop, 0) AS click_one_hop,
           coalesce(click_multi_hop, 0) AS click_multi_hop, coalesce(relevance_one_hop, 0) AS relevance_one_hop,
           coalesce(relevance_multi_hop, 0) AS relevance_multi_hop
    FROM evidence LEFT JOIN new_query_counts USING (date) LEFT JOIN pairs USING (date) ORDER BY date
""")
"""Impressions, clicks and queries per day of the log, and new pairs by source."""


def _wilson(hits: str, n: str) -> str:
    """SQL of the share hits ÷ n and its 95 % Wilson score interval (Wilson, 1927); null if n is 0.

    scipy's `binomtest` gives the same three decimals, but for one pair of counts and outside of SQL.

    Args:
        hits: name of the column with the number of hits. The result has the columns {hits}, {hits}_low, {hits}_high.
        n: name of the column with the number of trials.
    """
    # z = 1.959964 is the normal quantile for 95 %; z² = 3.841459, z²/2 = 1.920729, z²/4 = 0.960365.
    middle = f"({hits} + 1.920729) / ({n} + 3.841459)"
    variance = f"{hits} * ({n} - {hits}) / nullif({n}, 0) + 0.960365"
    spread = f"1.959964 * sqrt({variance}) / ({n} + 3.841459)"
    return (
        f"round({hits} / nullif({n}, 0), 3) AS {hits}, round(greatest({middle} - {spread}, 0), 3) AS {hits}_low, "
        f"round(least({middle} + {spread}, 1), 3) AS {hits}_high"
    )


verified_shares = Statistic(f"""
    WITH verdict_counts AS (
        SELECT source, tier, judge_id, count(relevant) AS positives, count(*) FILTER (relevant) AS relevant,
               count(negative_relevant) AS negatives, count(*) FILTER (negative_relevant) AS of_negatives
        FROM (SELECT *, unnest(tiers) AS tier FROM mined_verdicts) GROUP BY source, tier, judge_id
    )
    SELECT source, tier, positives, {_wilson("relevant", "positives")},
           negatives, {_wilson("of_negatives", "negatives")}, judge_id
    FROM verdict_counts ORDER BY source, list_position(['small', 'median', 'large'], tier), judge_id
""")
"""Shares of positives and negatives that the judge calls relevant, by source and tier, with 95 % intervals."""

association_counts = Statistic("""
    WITH lenders AS (SELECT kind, count(*) AS n FROM associations GROUP BY tenant, query_id, kind)
    SELECT kind, count(*) AS queries, CAST(sum(n) AS BIGINT) AS associations, avg(n) AS mean, max(n) AS max,
           CAST(sum(CASE WHEN $1 > 0 THEN greatest(n - $1, 0) ELSE 0 END) AS BIGINT) AS beyond_the_cap
    FROM lenders GROUP BY kind ORDER BY kind
""")
"""Queries that have associated queries, which lend them their positives, by kind of association.

mean and max are associated queries per query; `beyond_the_cap` sums those above the cap `$1` (0: no cap).
"""

# ScalingNote, Table 1, for cumulative tiers. Each text is counted once, at the smallest tier that contains it.
tiers = Statistic("""
    WITH tiers AS (FROM (VALUES (1, 'small'), (2, 'median'), (3, 'large')) AS t(size, tier)),
    sized_pairs AS (SELECT size, tenant, query, positive_id AS doc_id FROM triplets JOIN tiers USING (tier)),
    smallest_tiers AS (SELECT tenant, doc_id, min(size) AS size FROM sized_pairs GROUP BY tenant, doc_id),
    texts AS (
        SELECT size, count(*) AS documents, count(title) AS titles, count(text) AS texts,
               sum(len(string_split_regex(trim(title), '\\s+'))) AS title_words,
               sum(len(string_split_regex(trim(text), '\\s+'))) AS text_words
        FROM smallest_tiers JOIN documents USING (tenant, doc_id) GROUP BY size
    ), query_words AS (
        SELECT size, count(*) AS pairs, sum(len(string_split(query, ' '))) AS words FROM sized_pairs GROUP BY size
    ), text_statistics AS (
        SELECT t.size, t.tier, CAST(sum(documents) AS BIGINT) AS documents,
               sum(title_words) / nullif(sum(titles), 0) AS words_per_title,
               sum(text_words) / sum(texts) AS words_per_text
        FROM tiers t JOIN texts ON texts.size <= t.size GROUP BY t.size, t.tier
    ), query_statistics AS (
        SELECT t.size, CAST(sum(pairs) AS BIGINT) AS pairs, sum(words) / sum(pairs) AS words_per_query
        FROM tiers t JOIN query_words w ON w.size <= t.size GROUP BY t.size
    )
    SELECT tier, documents, pairs, pairs / max(pairs) OVER () AS share, words_per_title, words_per_text, words_per_query
    FROM text_statistics JOIN query_statistics USING (size) ORDER BY size
""")
"""Statistics of ScalingNote's Table 1 per tier; each tier contains the smaller ones."""

# Statistics of validated runs.


def _format_interval(name: str, digits: int = 3) -> str:
    """SQL that formats an estimate as text, with its interval if it has one: `0.912 (0.880–0.938)`; null without one.

    Args:
        name: column of the estimate; the interval is in the columns {name}_low and {name}_high.
        digits: decimal places.
    """
    number = f"%.{digits}f"
    return f"""
        CASE WHEN {name}_low IS NOT NULL
             THEN printf('{number} ({number}–{number})', {name}, {name}_low, {name}_high)
             WHEN {name} IS NOT NULL THEN printf('{number}', {name}) END AS {name}
    """


# Columns that all tables of validation figures have.
_VALIDATION_COLUMNS_SQL = f"""
    labelled, queries, {_format_interval("precision")}, {_format_interval("recall")},
    {_format_interval("missed", 0)}, {_format_interval("kappa")}
"""

validated = Statistic(f"""
    SELECT {_VALIDATION_COLUMNS_SQL}, {_format_interval("sample_kappa")}, {_format_interval("weighted_kappa")},
           null_rate
    FROM validation WHERE tenant IS NULL AND retriever IS NULL
""")
"""Agreement of judge and people for the whole run, with 95 % intervals, as text; empty without validation."""

validated_by_tenant = Statistic(
    f"SELECT tenant, {_VALIDATION_COLUMNS_SQL}, null_rate FROM validation WHERE tenant IS NOT NULL ORDER BY tenant"
)
"""The figures of `validated` for each tenant; empty if there is only one tenant."""

validated_by_retriever = Statistic(
    f"SELECT retriever, {_VALIDATION_COLUMNS_SQL} FROM validation WHERE retriever IS NOT NULL ORDER BY retriever"
)
"""The figures of `validated` for the pairs that each retriever found."""

confusion = Statistic("""
    SELECT judge, relevant, not_relevant FROM (
        SELECT 0 AS place, 'relevant' AS judge, true_positives AS relevant, false_positives AS not_relevant, *
        FROM validation UNION ALL BY NAME
        SELECT 1 AS place, 'not relevant' AS judge, false_negatives AS relevant, true_negatives AS not_relevant, *
        FROM validation UNION ALL BY NAME
        SELECT 2 AS place, 'no verdict' AS judge, unread_relevant AS relevant, unread_not_relevant AS not_relevant, *
        FROM validation WHERE unread_relevant + unread_not_relevant > 0
    ) WHERE tenant IS NULL AND retriever IS NULL ORDER BY place
""")
"""Confusion matrix of the labelled pairs: the judge's verdict (rows) against human labels (columns)."""

fitted_thresholds = Statistic("""
    SELECT coalesce(tenant, 'all') AS tenant, threshold, kappa, fitted_threshold, fitted_kappa, cross_validated_kappa
    FROM validation WHERE retriever IS NULL AND fitted_threshold IS NOT NULL ORDER BY validation.tenant NULLS FIRST
""")
"""Current threshold and the threshold with the highest kappa, overall and per tenant; empty if none was fitted."""

reviewers = Statistic("""
    SELECT coalesce(reviewer, 'all') AS reviewer, other, pairs, agreements, kappa, kappa_low, kappa_high,
           weighted_kappa, alpha, alpha_low, alpha_high
    FROM reviewer_agreement ORDER BY reviewer_agreement.reviewer NULLS LAST, other
""")
"""The table `reviewer_agreement`: each pair of reviewers, then all reviewers together."""

disagreements = Statistic("""
    SELECT d.kind, d.tenant, d.query_id, d.chunk_id, q.text AS query, c.text AS chunk,
           d.verdict, d.probability, d.grade, d.relevance AS people,
           array_to_string(list_filter(d.reasons, lambda reason: reason <> ''), ' | ') AS reasons,
           d.rationale AS judge_says, d.weight
    FROM disagreements d JOIN queries q USING (tenant, query_id) JOIN chunks c USING (tenant, chunk_id)
    ORDER BY d.weight DESC, d.tenant, d.query_id, d.chunk_id LIMIT $1
""")
"""At most `$1` pairs on which judge and people disagree, with their texts, by descending sampling weight.

The weight is the number of pairs of the pool that a labelled pair stands for.
"""

label_sources = Statistic("""
    SELECT source, count(*) AS labels, count(*) FILTER (relevance > 0) AS relevant
    FROM qrels GROUP BY source HAVING (SELECT count(*) FROM qrels WHERE source = 'human') > 0 ORDER BY source DESC
""")
"""Labels and positives by source (human or judge); empty if there are no human labels."""
