"""Report section of `darklode adapt model-swap`."""

from __future__ import annotations

from darklode.pipeline.report.figure import Figure, FigureSection, sql_source

VERDICT_SQL = """
    SELECT shipped, reason, method, setting, recall_10, low, min_share, queries, texts, index_texts FROM swap_verdict
"""
AGREEMENT_SQL = "FROM swap_agreement ORDER BY reference DESC, k, value DESC, system"
QUALITY_SQL = "FROM swap_quality ORDER BY measure, system"
PARTIAL_SQL = 'FROM swap_partial ORDER BY "order", share'
TRIALS_SQL = "SELECT method, setting, recall_10, recall_100, selected FROM swap_trials ORDER BY trial"

SECTION = FigureSection(
    "model_swap",
    "Model swap",
    (
        Figure(
            "swap-verdict",
            "Decision",
            "mapped: queries of the new encoder search the old index; none: re-embedding is needed.",
            sql_source(VERDICT_SQL),
            needs=("swap_verdict",),
            wide=True,
        ),
        Figure(
            "swap-agreement",
            "Recall on held-out queries",
            "Share of the reference's first k that each system finds among its first k. re-embedding: new queries on "
            "new vectors. index encoder: old queries on old vectors, that is no change.",
            sql_source(AGREEMENT_SQL),
            needs=("swap_agreement",),
            wide=True,
        ),
        Figure(
            "swap-quality",
            "Labelled quality",
            "difference is to the index encoder; low and high are its 95 % interval.",
            sql_source(QUALITY_SQL),
            needs=("swap_quality",),
        ),
        Figure(
            "swap-partial",
            "Partial re-embedding",
            "Share of re-embedding's results found if a share of the texts gets new vectors and both indexes are "
            "searched.",
            sql_source(PARTIAL_SQL),
            needs=("swap_partial",),
        ),
        Figure(
            "swap-trials",
            "Maps",
            "Share of re-embedding's results found on the validation queries.",
            sql_source(TRIALS_SQL),
            needs=("swap_trials",),
            wide=True,
        ),
    ),
)
