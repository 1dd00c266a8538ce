"""The stage `label`: relevance labels from verdicts or, if configured, from people."""

from __future__ import annotations

from dataclasses import replace

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.artifacts.parquet_writer import TABLE_GROUP_ROWS
from darklode.schemas.judging import LabelSettings
from darklode.schemas.tables import QRELS

LABEL = Stage("label", 3, ("queries", "pool", "verdicts"), ("qrels",))

OVERRIDING_LABEL = replace(LABEL, reads=(*LABEL.reads, "human_labels"))
"""The same stage with `labels.human_overrides`."""

JUDGED = """
    SELECT tenant, query_id, chunk_id,
           CASE WHEN relevant THEN greatest(coalesce(grade, 1), 1) ELSE 0 END AS relevance, 'judge' AS source
    FROM verdicts WHERE relevant IS NOT NULL
"""

OVERRIDDEN = f"""
    SELECT * FROM ({JUDGED}) ANTI JOIN human_labels USING (tenant, query_id, chunk_id)
    UNION ALL SELECT tenant, query_id, chunk_id, relevance, 'human' FROM human_labels
"""

OF_A_SPLIT = """
    SELECT tenant, query_id, chunk_id, relevance, source
    FROM ({labels}) LEFT JOIN (SELECT tenant, query_id, split FROM queries) USING (tenant, query_id)
    WHERE coalesce(split, '') = $split ORDER BY tenant, query_id, chunk_id
"""

CHANGED = f"""
    SELECT count(*) AS human, count(*) FILTER (j.relevance IS NULL) AS only_human,
           count(*) FILTER ((j.relevance > 0) <> (h.relevance > 0)) AS overruled
    FROM human_labels h LEFT JOIN ({JUDGED}) j USING (tenant, query_id, chunk_id)
"""

# A query is without an answer only if every candidate has a label: one that nobody read may answer it.
OUTCOMES = """
    WITH labels AS ({labels}),
    found AS (
        SELECT tenant, query_id, count(*) AS candidates, count(relevance) AS labelled
        FROM pool LEFT JOIN labels USING (tenant, query_id, chunk_id) GROUP BY tenant, query_id
    ),
    answered AS (SELECT DISTINCT tenant, query_id, true AS answered FROM labels WHERE relevance > 0),
    outcomes AS (
        SELECT CASE WHEN answered THEN 'answered' WHEN candidates IS NULL THEN 'no candidate found'
                    WHEN labelled < candidates THEN 'no positive among the candidates with a label'
                    ELSE 'nothing answers it' END AS outcome
        FROM queries LEFT JOIN found USING (tenant, query_id) LEFT JOIN answered USING (tenant, query_id)
    )
    SELECT outcome, count(*) AS queries FROM outcomes GROUP BY outcome ORDER BY outcome
"""


def write_qrels(tables: Tables, output: Output, settings: LabelSettings) -> None:
    """Write a relevance for every verdict that could be read, and say whose it is.

    A relevant pair's relevance is the judge's grade, 1 where it gives none; any other's is 0, whatever its grade; a
    verdict that is null has none. With `human_overrides` a pair that people labelled has their label instead, also
    where there is no verdict.

    A query none of whose candidates is relevant is an outcome of its own, counted in the funnel.

    Args:
        tables: holds `queries`, `pool` and `verdicts`; with `human_overrides` `human_labels`, too.
        output: takes `qrels`, a folder a split, by tenant, query_id and chunk_id; its facts count human labels, those
            of pairs without a label of the judge, and those that overrule it.
        settings: whether people overrule the judge.
    """
    labels = OVERRIDDEN if settings.human_overrides else JUDGED
    total = tables.rows("verdicts")
    for split in ("train", "validation", "test", ""):  # people may know a query that the run does not
        with output.row_group_writer("qrels", PART_ROWS, split) as take:
            for rows in tables.stream(OF_A_SPLIT.format(labels=labels), {"split": split}, TABLE_GROUP_ROWS):
                take(QRELS.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
                output.progress(sum(part.rows for part in output.parts["qrels"]), total)
    if settings.human_overrides:
        output.facts |= tables.sql(CHANGED).to_pylist()[0]
    n_qrels = sum(part.rows for part in output.parts["qrels"])
    judged = n_qrels - output.facts.get("only_human", 0)
    dropped = {"unreadable reply": total - judged} if total > judged else {}
    output.count(FunnelStep("label", "verdicts", total, "labels", n_qrels, dropped))
    output.count(_answers(tables, labels))


def _answers(tables: Tables, labels: str) -> FunnelStep:
    """Queries in, those with a positive out, and what became of the others."""
    rows = tables.sql(OUTCOMES.format(labels=labels)).to_pylist()
    queries = {row["outcome"]: row["queries"] for row in rows}
    answered = queries.pop("answered", 0)
    n_requested = answered + sum(queries.values())
    return FunnelStep("answers", "queries", n_requested, "queries with a positive", answered, queries)
