"""What comes after `darklode adapt`: whether the adapter fits an index, and what it changes there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from darklode.flows.commands.options import ConfigOption, JsonOption, SetOption
from darklode.flows.console import console, printable

Adapted = Annotated[str, typer.Argument(metavar="ADAPTER", help="A folder of `darklode adapt`, or s3://….")]
IndexOption = Annotated[str, typer.Option("--index", metavar="RUN", help="The run whose texts it is to search.")]

SHOWN = 5
COLUMNS = {"what": False, "fits": False, "seen": False}


def check(
    adapter: Adapted,
    *,
    index: IndexOption,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make sure that an adapter is for an index, and that it is applied: exit code 3 where it is not."""
    from darklode.flows import open_systems
    from darklode.flows.config import changed_values
    from darklode.flows.output import answering
    from darklode.pipeline.serve.adapter_check import require_fit

    with (
        open_systems.open_adapter_check(adapter, index, changed_values(config, assignments)) as adapter_check,
        answering(as_json) as answer,
    ):
        findings = list(adapter_check.findings())
        answer.rows("findings", [asdict(finding) for finding in findings], COLUMNS, f"{adapter} on {index}")
        answer.fact("fits", all(finding.fits for finding in findings))
        require_fit(adapter_check.adapter, adapter_check.index, findings)
        answer.say(f"{adapter} fits {index}.")


def swap(
    adapter: Adapted,
    *,
    index: IndexOption,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Live queries, as `build` reads them; without: those of the run."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which live queries change their first ten most, without labels; a section of the adapter's report."""
    from darklode.flows import open_systems
    from darklode.flows.output import answering
    from darklode.pipeline.serve.encoder_swap import distribution, most_changed, sentence

    rows, page = open_systems.swap_report(adapter, index, queries)
    with answering(as_json) as answer:
        answer.table("overlap", distribution(rows), "Texts of the first ten that stay")
        answer.table("queries", most_changed(rows, SHOWN), "Queries that change most", "No query changes.")
        answer.say(f"{sentence(rows)} All of it: {page}")


def onnx(adapter: Adapted) -> None:
    """Write the query encoder as one ONNX graph from token ids to the final vector, with its tokenizer: onnx/."""
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.train.release.adapter import Adapter
    from darklode.pipeline.train.release.onnx_export import FOLDER, export

    with Run(adapter).lock():
        opened_adapter = Adapter.open(adapter)
        off = export(opened_adapter)
    onnx_folder = printable(opened_adapter.store.path(FOLDER))
    console.print(f"{onnx_folder}: its vectors differ from the model's by {off:.1e} at most.", soft_wrap=True)
