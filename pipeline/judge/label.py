"""The stage `label`: relevance labels from verdicts or, if configured, from people."""

from __future__ import annotations

from dataclasses import replace

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.artifacts.parquet_writer import TABLE_GROUP_ROWS
from darklode.schemas.judging import LabelSettings
from darklode.schemas.tables import QRELS

LABEL = Stage("label", 4, ("queries", "pool", "verdicts"), ("qrels",))

OVERRIDING_LABEL = replace(LABEL, reads=(*LABEL.reads, "human_labels"))
"""The same stage with `labels.human_overrides`."""

JUDGE_LABELS_SQL = """
    SELECT tenant, query_id, chunk_id,
           CASE WHEN relevant THEN greatest(coalesce(grade, 1), 1) ELSE 0 END AS relevance, 'judge' AS source
    FROM verdicts WHERE relevant IS NOT NULL
"""

# Human labels without grades (only 0 and 1) say nothing about the grade of a relevant pair: it keeps the judge's grade,
# or gets the lowest grade that the judge gives to a relevant pair.
OVERRIDDEN_LABELS_SQL = f"""
    WITH judge_labels AS ({JUDGE_LABELS_SQL}), scales AS (
        SELECT (SELECT max(relevance) FROM human_labels) > 1 AS graded_by_people,
               (SELECT min(relevance) FROM judge_labels WHERE relevance > 0) AS lowest
    )
    SELECT * FROM judge_labels ANTI JOIN human_labels USING (tenant, query_id, chunk_id)
    UNION ALL
    SELECT tenant, query_id, chunk_id,
           CASE WHEN h.relevance = 0 OR graded_by_people THEN h.relevance
                ELSE coalesce(nullif(j.relevance, 0), lowest, h.relevance) END, 'human'
    FROM scales, human_labels h LEFT JOIN judge_labels j USING (tenant, query_id, chunk_id)
"""

BINARY_LABELS_SQL = "SELECT * REPLACE (least(relevance, 1) AS relevance) FROM ({labels})"

LABELS_OF_SPLIT_SQL = """
    SELECT tenant, query_id, chunk_id, relevance, source
    FROM ({labels}) LEFT JOIN (SELECT tenant, query_id, split FROM queries) USING (tenant, query_id)
    WHERE coalesce(split, '') = $split ORDER BY tenant, query_id, chunk_id
"""

HUMAN_LABEL_COUNTS_SQL = f"""
    SELECT count(*) AS human, count(*) FILTER (j.relevance IS NULL) AS only_human,
           count(*) FILTER ((j.relevance > 0) <> (h.relevance > 0)) AS overruled
    FROM human_labels h LEFT JOIN ({JUDGE_LABELS_SQL}) j USING (tenant, query_id, chunk_id)
"""

# A query counts as unanswered only if every candidate has a label; an unreadable one might be relevant.
QUERY_OUTCOMES_SQL = """
    WITH labels AS ({labels}),
    candidate_counts AS (
        SELECT tenant, query_id, count(*) AS candidates, count(relevance) AS labelled
        FROM pool LEFT JOIN labels USING (tenant, query_id, chunk_id) GROUP BY tenant, query_id
    ),
    answered_queries AS (SELECT DISTINCT tenant, query_id, true AS answered FROM labels WHERE relevance > 0),
    outcomes AS (
        SELECT CASE WHEN answered THEN 'answered' WHEN candidates IS NULL THEN 'no candidate found'
                    WHEN labelled < candidates THEN 'no positive among the labelled candidates'
                    ELSE 'no positive found' END AS outcome
        FROM queries LEFT JOIN candidate_counts USING (tenant, query_id)
        LEFT JOIN answered_queries USING (tenant, query_id)
    )
    SELECT outcome, count(*) AS queries FROM outcomes GROUP BY outcome ORDER BY outcome
"""


def write_qrels(tables: Tables, output: Output, settings: LabelSettings) -> None:
    """Write the relevance of every readable verdict, and its source (judge or human).

    A relevant pair has the judge's grade, or 1 without a grade; other pairs have 0, whatever their grade. Null verdicts
    get no row. With `human_overrides`, human labels replace verdicts, and are added where there is none. With `binary`,
    a relevant pair has 1, whatever its grade.

    Args:
        tables: must contain `queries`, `pool` and `verdicts`; with `human_overrides` also `human_labels`.
        output: receives `qrels`, one folder per split; facts count human labels, those without a verdict, and those
            that overrule one. The funnel counts queries by outcome.
        settings: whether human labels override the judge, and whether grades are dropped.
    """
    labels = OVERRIDDEN_LABELS_SQL if settings.human_overrides else JUDGE_LABELS_SQL
    labels = BINARY_LABELS_SQL.format(labels=labels) if settings.binary else labels
    total = tables.rows("verdicts")
    for split in ("train", "validation", "test", ""):  # human labels may have queries that the run lacks
        with output.row_group_writer("qrels", PART_ROWS, split) as take:
            for rows in tables.stream(LABELS_OF_SPLIT_SQL.format(labels=labels), {"split": split}, TABLE_GROUP_ROWS):
                take(QRELS.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
                output.progress(sum(part.rows for part in output.parts["qrels"]), total)
    if settings.human_overrides:
        output.facts |= tables.sql(HUMAN_LABEL_COUNTS_SQL).to_pylist()[0]
    n_qrels = sum(part.rows for part in output.parts["qrels"])
    judged = n_qrels - output.facts.get("only_human", 0)
    dropped = {"unreadable reply": total - judged} if total > judged else {}
    output.count(FunnelStep("label", "verdicts", total, "labels", n_qrels, dropped))
    output.count(_outcome_step(tables, labels))


def _outcome_step(tables: Tables, labels: str) -> FunnelStep:
    """Funnel step of queries by outcome."""
    rows = tables.sql(QUERY_OUTCOMES_SQL.format(labels=labels)).to_pylist()
    queries = {row["outcome"]: row["queries"] for row in rows}
    answered = queries.pop("answered", 0)
    n_requested = answered + sum(queries.values())
    return FunnelStep("answers", "queries", n_requested, "queries with a positive", answered, queries)
