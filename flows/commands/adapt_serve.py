"""darklode adapt check, preview and onnx: verify, preview and export an adapter."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from darklode.flows.commands.options import AdapterArgument, ConfigOption, JsonOption, SetOption
from darklode.flows.console import console, printable

IndexOption = Annotated[str, typer.Option("--index", metavar="RUN", help="Run whose texts the adapter will search.")]

MAX_QUERIES_SHOWN = 5


def check(
    adapter: AdapterArgument,
    *,
    index: IndexOption,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify that an adapter matches an index and is applied; exit code 3 if not."""
    from darklode.flows import open_systems
    from darklode.flows.config import changed_values
    from darklode.flows.output import FINDING_COLUMNS, answering
    from darklode.pipeline.serve.adapter_check import require_fit

    with (
        open_systems.open_adapter_check(adapter, index, changed_values(config, assignments)) as adapter_check,
        answering(as_json) as answer,
    ):
        findings = list(adapter_check.findings())
        answer.rows("findings", [asdict(finding) for finding in findings], FINDING_COLUMNS, f"{adapter} on {index}")
        answer.fact("fits", all(finding.fits for finding in findings))
        require_fit(adapter_check.adapter, adapter_check.index, findings)
        answer.say(f"{adapter} fits {index}.")


def preview(
    adapter: AdapterArgument,
    *,
    index: IndexOption,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Live queries in a format that `build` reads; default: the run's queries."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how the top 10 of live queries would change; needs no labels and is added to the adapter's report."""
    from darklode.flows import open_systems
    from darklode.flows.output import answering
    from darklode.pipeline.serve.encoder_swap import distribution, most_changed, sentence

    rows, page = open_systems.swap_report(adapter, index, queries)
    with answering(as_json) as answer:
        answer.table("overlap", distribution(rows), "Overlap of the old and new top 10")
        answer.table("queries", most_changed(rows, MAX_QUERIES_SHOWN), "Queries that change most", "No query changes.")
        answer.say(f"{sentence(rows)} Full report: {page}")


def onnx(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Output of `adapt` or `train-reranker`.")],
) -> None:
    """Export a query encoder or a reranker, with its tokenizer, to FOLDER/onnx as one ONNX graph from token ids."""
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.reranker.pair_graph import export_reranker, is_reranker
    from darklode.pipeline.train.release.adapter import Adapter
    from darklode.pipeline.train.release.onnx_export import ONNX_FOLDER, export

    run = Run(folder)
    with run.lock():
        is_pair_graph = is_reranker(run)
        max_difference = export_reranker(run) if is_pair_graph else export(Adapter.open(folder))
    path, values = printable(run.store.path(ONNX_FOLDER)), "scores" if is_pair_graph else "vectors"
    console.print(f"{path}: its {values} differ from the model's by at most {max_difference:.1e}.", soft_wrap=True)
