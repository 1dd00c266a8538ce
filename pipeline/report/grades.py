"""Graded labels in the card and the report: their distribution, and grades mixed with binary labels."""

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.report.statistic import Statistic

GRADES_NOTE = (
    "Grade 0 is not relevant. nDCG takes the grade as the gain; recall, success and the audit count every grade from 1 "
    "as relevant. labels.binary drops the grades."
)

label_grades = Statistic("""
    SELECT relevance AS grade, count(*) AS labels, count(*) FILTER (split = 'train') AS train,
           count(*) FILTER (split = 'validation') AS validation, count(*) FILTER (split = 'test') AS test,
           count(*) FILTER (source = 'human') AS by_people
    FROM qrels LEFT JOIN (SELECT tenant, query_id, split FROM queries) USING (tenant, query_id)
    GROUP BY relevance HAVING (SELECT max(relevance) FROM qrels) > 1 ORDER BY grade DESC
""")
"""Labels by grade and split; empty if no label has a grade above 1."""

MAX_GRADES_SQL = """
    SELECT max(relevance) FILTER (source = 'judge') AS judge, max(relevance) FILTER (source = 'human') AS people
    FROM qrels
"""


def mixed_grades(tables: Tables) -> str:
    """Caveat on human grades among the labels of a judge that gives none; otherwise empty.

    Args:
        tables: `duckdb_views.all_tables` of a labelled run.
    """
    (row,) = tables.sql(MAX_GRADES_SQL).to_pylist()
    if (row["judge"] or 0) != 1 or (row["people"] or 0) < 2:
        return ""
    return (
        f"People give grades up to {row['people']}, the judge gives none: nDCG counts the judge's positives with gain "
        "1. Set labels.binary for equal gains."
    )
