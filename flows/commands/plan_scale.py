"""darklode plan-scale: estimate time, hardware and cost for a corpus size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from darklode.flows.commands.options import JsonOption, application

app = application()


@app.command(epilog="Example: darklode plan-scale --documents 1e9 --queries 1e8 --hardware hardware.yaml")
def plan_scale(
    *,
    documents: Annotated[float, typer.Option(metavar="N", min=1, help="Number of documents, e.g. 1e9.")],
    queries: Annotated[float, typer.Option(metavar="N", min=1, help="Number of queries in the log, e.g. 1e8.")],
    hardware: Annotated[
        Path,
        typer.Option(metavar="FILE", help="YAML file of machines, GPUs, encoders, prices (docs/guides/plan-scale.md)."),
    ],
    unit_costs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Unit costs from `python -m benchmarks.scaling`. Default: those that come with Darklode.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate hours, machines, memory, storage, tokens and cost per stage, and report stages that do not scale."""
    from darklode.flows.jobs.plan_scale import plan_scale
    from darklode.flows.output import answering
    from darklode.pipeline.scale.format import COLUMNS, format_rows, format_total, notes
    from darklode.pipeline.scale.plan import as_rows

    rows, total, costs = plan_scale(documents, queries, hardware, unit_costs)
    with answering(as_json) as answer:
        if as_json:
            answer.fact("stages", as_rows(rows))
        else:
            answer.rows("stages", format_rows(rows), COLUMNS, "Estimated resources per stage")
        answer.fact("total", total, format_total(total))
        answer.fact("measured", {"day": costs.day, "machine": costs.machine})
        for note in notes(rows, costs):
            answer.say(note)
