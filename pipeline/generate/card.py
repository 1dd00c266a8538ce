"""The page beside generated queries: how many stay, why others go, and how like real ones they are."""

from __future__ import annotations

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.card import cell, document
from darklode.pipeline.generate.outcomes import OUTCOME
from darklode.schemas.settings import Settings

READING = """\
Nothing here is a user's query. All are of the train split, so that none is ever tested by: say of a model that learns
from them what it gains on real queries. Learn from them beside the run: `darklode adapt RUN THIS …`; their triplets
have the source `generated` (`adapt.sources`)."""

KEPT = "SELECT tenant, count(*) FILTER (kept) AS kept, count(*) AS written FROM generated_queries GROUP BY 1 ORDER BY 1"
REASONS = """
    SELECT coalesce(reason, 'kept') AS outcome, count(*) AS queries FROM generated_queries
    GROUP BY outcome ORDER BY queries DESC, outcome
"""
REACHED = """
    SELECT tenant, count(*) AS documents, count(*) FILTER (reached) AS reached
    FROM generation_documents GROUP BY tenant ORDER BY tenant
"""
SOME = """
    SELECT text AS query, chunk_id AS text FROM generated_queries WHERE kept
    ORDER BY md5(query_id) LIMIT 10
"""
CHECK = "SELECT tenant, measure, real, generated FROM generation_check"


def card(run: Run, settings: Settings, source: str) -> bytes:
    """The page, in Markdown.

    Args:
        run: whose stages are complete.
        settings: in force.
        source: the run that the texts are of.
    """
    tables = run.tables(OUTCOME.writes[0])
    sections = [
        ("Outcomes", outcomes(run), ""),
        ("Documents that no query reached", coverage(run), ""),
        ("Like real queries", run.tables("generation_check").sql(CHECK), ""),
        ("Some of those that are kept", tables.sql(SOME), ""),
    ]
    head = [f"# Queries by {cell(settings.generate.kind)} for the texts of {cell(source)}", READING]
    return document(head, sections, []).encode()


def outcomes(run: Run) -> pa.Table:
    """How many are kept, and why others are not."""
    return run.tables("generated_queries").sql(REASONS)


def coverage(run: Run) -> pa.Table:
    """Documents, and those that a real query reached, by tenant."""
    return run.tables("generation_documents").sql(REACHED)


def summary_sentence(run: Run) -> str:
    """How many are kept, as a sentence."""
    rows = run.tables("generated_queries").sql(KEPT).to_pylist()
    each = ", ".join(f"{row['kept']:,} of {row['written']:,} queries of {row['tenant']}" for row in rows)
    return f"{run.store.url} holds {each or 'no query'} to learn from"
