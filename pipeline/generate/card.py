"""The data card of generated queries: outcomes, coverage, and similarity to real queries."""

from __future__ import annotations

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.card import cell, document
from darklode.pipeline.generate.generation import WRITE_STAGE
from darklode.pipeline.generate.outcomes import OUTCOME_STAGE
from darklode.schemas.settings import Settings

USAGE_NOTE = """\
These queries are synthetic. All are in the train split; evaluate models trained on them on real queries. Train on them
together with the run: `darklode adapt RUN THIS …`; their triplets have the source `generated` (`adapt.sources`)."""

KEPT_COUNTS_SQL = (
    "SELECT tenant, count(*) FILTER (kept) AS kept, count(*) AS written FROM generated_queries GROUP BY 1 ORDER BY 1"
)
REASON_COUNTS_SQL = """
    SELECT coalesce(reason, 'kept') AS outcome, count(*) AS queries FROM generated_queries
    GROUP BY outcome ORDER BY queries DESC, outcome
"""
COVERAGE_SQL = """
    SELECT tenant, count(*) AS documents, count(*) FILTER (reached) AS reached
    FROM generation_documents GROUP BY tenant ORDER BY tenant
"""
EXAMPLES_SQL = """
    SELECT text AS query, chunk_id AS text FROM generated_queries WHERE kept
    ORDER BY md5(query_id) LIMIT 10
"""
SATURATION_SQL = """
    SELECT * FROM generation_saturation QUALIFY row_number() OVER (PARTITION BY tenant ORDER BY queries DESC) = 1
    ORDER BY tenant
"""
SATURATION_NOTE = """\
Kept queries in clusters of similar ones. `new_share` is the expected share of the next queries that are unlike all
earlier ones, `doubling` the new clusters that as many queries again would bring, by the same generator for texts like
these. `unseen` is a lower bound."""
REALISM_SQL = "SELECT tenant, measure, real, generated FROM generation_check"


def card(run: Run, settings: Settings, source: str) -> bytes:
    """The card, in Markdown.

    Args:
        run: with complete stages.
        settings: of the run.
        source: the run of the texts.
    """
    tables = run.tables(OUTCOME_STAGE.writes[0])
    sections = [
        ("Outcomes", outcomes(run), ""),
        ("Document coverage by real queries", coverage(run), ""),
        ("Similarity to real queries", run.tables("generation_check").sql(REALISM_SQL), ""),
        ("What more queries would add", saturation(run), SATURATION_NOTE),
        ("Examples", tables.sql(EXAMPLES_SQL), ""),
    ]
    head = [f"# Queries by {cell(settings.generate.kind)} for the texts of {cell(source)}", USAGE_NOTE]
    return document(head, sections, []).encode()


def outcomes(run: Run) -> pa.Table:
    """Number of queries by outcome."""
    return run.tables("generated_queries").sql(REASON_COUNTS_SQL)


def coverage(run: Run) -> pa.Table:
    """Number of documents, and of those that are relevant to a real query, by tenant."""
    return run.tables("generation_documents").sql(COVERAGE_SQL)


def saturation(run: Run) -> pa.Table:
    """Clusters of kept queries after the last batch, by tenant."""
    return run.tables("generation_saturation").sql(SATURATION_SQL)


def saturation_sentence(run: Run) -> str:
    """What more queries by the same generator would add, as a sentence per tenant; empty without kept queries."""
    written = run.manifests().get(WRITE_STAGE.name)
    stopped = written.facts.get("stopped", {}) if written else {}
    sentences = []
    for row in saturation(run).to_pylist():
        until = f" It stopped after {stopped[row['tenant']]:,} texts." if row["tenant"] in stopped else ""
        sentences.append(
            f"{row['tenant']}: {row['clusters']:,} clusters of similar queries, at least {row['unseen']:,.0f} not seen "
            f"yet; {row['new_share']:.0%} of the next queries would be unlike all earlier ones, and as many queries "
            f"again would add about {row['doubling']:,.0f} clusters.{until}"
        )
    return " ".join(sentences)


def summary_sentence(run: Run) -> str:
    """Number of queries kept, as a sentence."""
    rows = run.tables("generated_queries").sql(KEPT_COUNTS_SQL).to_pylist()
    each = ", ".join(f"{row['kept']:,} of {row['written']:,} queries of {row['tenant']}" for row in rows)
    return f"{run.store.url} holds {each or 'no query'} for training"
