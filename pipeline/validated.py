"""What validation found, as small tables for the card, the report and the screen.

Every function of tables takes `views.all_tables(run)`, or tables that hold those named in its query.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from pipeline.artifacts import Run, Tables, digest


def _spread(name: str, digits: int = 3) -> str:
    """A figure with its interval, as text; the figure alone where it has no interval."""
    number = f"%.{digits}f"
    return f"""
        CASE WHEN {name}_low IS NOT NULL
             THEN printf('{number} ({number}–{number})', {name}, {name}_low, {name}_high)
             WHEN {name} IS NOT NULL THEN printf('{number}', {name}) END AS {name}
    """


_FIGURES = f"""
    labelled, queries, {_spread("precision")}, {_spread("recall")}, {_spread("missed", 0)}, {_spread("kappa")}
"""
EVERYTHING = f"""
    SELECT {_FIGURES}, {_spread("sample_kappa")}, {_spread("weighted_kappa")}, null_rate
    FROM validation WHERE tenant IS NULL AND retriever IS NULL
"""
BY_TENANT = f"SELECT tenant, {_FIGURES}, null_rate FROM validation WHERE tenant IS NOT NULL ORDER BY tenant"
BY_RETRIEVER = f"SELECT retriever, {_FIGURES} FROM validation WHERE retriever IS NOT NULL ORDER BY retriever"

CONFUSION = """
    SELECT judge, relevant, not_relevant FROM (
        SELECT 0 AS place, 'relevant' AS judge, true_positives AS relevant, false_positives AS not_relevant, *
        FROM validation UNION ALL BY NAME
        SELECT 1 AS place, 'not relevant' AS judge, false_negatives AS relevant, true_negatives AS not_relevant, *
        FROM validation UNION ALL BY NAME
        SELECT 2 AS place, 'no verdict' AS judge, unread_relevant AS relevant, unread_not_relevant AS not_relevant, *
        FROM validation WHERE unread_relevant + unread_not_relevant > 0
    ) WHERE tenant IS NULL AND retriever IS NULL ORDER BY place
"""

THRESHOLDS = """
    SELECT coalesce(tenant, 'all') AS tenant, threshold, kappa, fitted_threshold, fitted_kappa, cross_validated_kappa
    FROM validation WHERE retriever IS NULL AND fitted_threshold IS NOT NULL ORDER BY validation.tenant NULLS FIRST
"""

REVIEWERS = """
    SELECT coalesce(reviewer, 'all') AS reviewer, other, pairs, alike, kappa, kappa_low, kappa_high,
           alpha, alpha_low, alpha_high
    FROM reviewer_agreement ORDER BY reviewer_agreement.reviewer NULLS LAST, other
"""

DISAGREEMENTS = """
    SELECT d.kind, d.tenant, q.text AS query, c.text AS chunk, d.verdict, d.probability, d.relevance AS people,
           array_to_string(list_filter(d.reasons, lambda reason: reason <> ''), ' | ') AS reasons,
           d.rationale AS judge_says, d.weight
    FROM disagreements d JOIN queries q USING (tenant, query_id) JOIN chunks c USING (tenant, chunk_id)
    ORDER BY d.weight DESC, d.tenant, d.query_id, d.chunk_id LIMIT $1
"""


SOURCES = """
    SELECT source, count(*) AS labels, count(*) FILTER (relevance > 0) AS relevant
    FROM qrels GROUP BY source HAVING (SELECT count(*) FROM qrels WHERE source = 'human') > 0 ORDER BY source DESC
"""


def stale(run: Run) -> bool:
    """Whether a run's validation is of other verdicts than those it has by now."""
    manifest, parts = run.manifests().get("validate"), run.parts()
    return manifest is not None and manifest.inputs.get("verdicts") != digest(parts.get("verdicts", []))


def everything(tables: Tables) -> pa.Table:
    """The figures of the whole run with their 95 % intervals, as text; no row where nothing was validated."""
    return tables.sql(EVERYTHING)


def by_tenant(tables: Tables) -> pa.Table:
    """The same of each tenant, where there are several."""
    return tables.sql(BY_TENANT)


def by_retriever(tables: Tables) -> pa.Table:
    """The same of the pairs that each retriever found."""
    return tables.sql(BY_RETRIEVER)


def confusion(tables: Tables) -> pa.Table:
    """What the judge said of the labelled pairs (rows), against what people did (columns)."""
    return tables.sql(CONFUSION)


def thresholds(tables: Tables) -> pa.Table:
    """The threshold in force and the one that fits people best, of all and by tenant; no row where none was fitted."""
    return tables.sql(THRESHOLDS)


def reviewers(tables: Tables) -> pa.Table:
    """`reviewer_agreement`: each two, then all."""
    return tables.sql(REVIEWERS)


def disagreements(tables: Tables, most: int) -> pa.Table:
    """The pairs on which judge and people differ, with their texts, those that stand for most pairs first."""
    return tables.sql(DISAGREEMENTS, [most])


def release(tables: Tables) -> list[dict[str, Any]]:
    """Rows of `release`."""
    rows: list[dict[str, Any]] = tables.sql("SELECT * FROM release ORDER BY figure").to_pylist()
    return rows


def outcome(rows: Iterable[Mapping[str, Any]]) -> str:
    """`published`, `held back` or `not asked`, from rows of `release`."""
    passed = {row["passed"] for row in rows} - {None}
    return "held back" if False in passed else "published" if passed else "not asked"


def sources(tables: Tables) -> pa.Table:
    """Labels by whose they are; no row where all are the judge's."""
    return tables.sql(SOURCES)
