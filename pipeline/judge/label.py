"""The labels of the dataset: the judge's verdicts, or people's in their place where that is asked for."""

from __future__ import annotations

from dataclasses import replace

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.schemas.settings import LabelSettings
from darklode.schemas.tables import QRELS

LABEL = Stage("label", 1, ("verdicts",), ("qrels",))

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

CHANGED = f"""
    SELECT count(*) AS human, count(*) FILTER (j.relevance IS NULL) AS only_human,
           count(*) FILTER ((j.relevance > 0) <> (h.relevance > 0)) AS overruled
    FROM human_labels h LEFT JOIN ({JUDGED}) j USING (tenant, query_id, chunk_id)
"""


def label(tables: Tables, output: Output, settings: LabelSettings) -> None:
    """Write a relevance for every verdict that could be read, and say whose it is.

    A relevant pair's relevance is the judge's grade, 1 where it gives none; any other's is 0, whatever its grade; a
    verdict that is null has none. With `human_overrides` a pair that people labelled has their label instead, also
    where there is no verdict.

    Args:
        tables: holds `verdicts`; with `human_overrides` `human_labels`, too.
        output: takes `qrels`, by tenant, query_id and chunk_id; its facts count human labels, those of pairs without
            a label of the judge, and those that overrule it.
        settings: whether people overrule the judge.
    """
    labels = OVERRIDDEN if settings.human_overrides else JUDGED
    total = tables.rows("verdicts")
    query = f"SELECT * FROM ({labels}) ORDER BY tenant, query_id, chunk_id"
    for rows in tables.stream(query, {}, PART_ROWS):
        output.write("qrels", QRELS.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
        output.progress(sum(part.rows for part in output.parts["qrels"]), total)
    if settings.human_overrides:
        output.facts |= tables.sql(CHANGED).to_pylist()[0]
    written = sum(part.rows for part in output.parts["qrels"])
    judged = written - output.facts.get("only_human", 0)
    dropped = {"unreadable reply": total - judged} if total > judged else {}
    output.count(FunnelStep("label", "verdicts", total, "labels", written, dropped))
