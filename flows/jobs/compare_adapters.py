"""compare-adapters: all adaptation methods, with controls, on the same queries, steps and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from darklode.flows.jobs.adapt_encoder import contents, judges_of, open_base, pairs_step, terms_step, unopened_base
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.prefect.progress import reporter
from darklode.flows.runs import output_run, read_runs, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Step, call
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import resolve_tenant
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.pipeline.train.release.ablation import ABLATION_STAGE, compare
from darklode.pipeline.train.release.comparison import COMPARISON_STAGE, comparison
from darklode.pipeline.train.release.comparison_page import (
    METHODS,
    PAGE,
    SERVED_AS_HYBRID,
    by_system,
    deciding,
    explain_controls,
    page,
)
from darklode.pipeline.train.release.unjudged import (
    COMPARISON_UNJUDGED_STAGE,
    NO_JUDGES,
    UnjudgedJudges,
    judge_unjudged,
)
from darklode.schemas.adaptation import SEEDS, Method
from darklode.schemas.comparison_tables import COMPARISON_LISTS
from darklode.schemas.run_inputs import ComparisonInputs
from darklode.schemas.settings import Settings


def compare_adapters(
    runs: Sequence[str],
    encoder: str,
    out: str,
    settings: dict[str, Any] | None = None,
    methods: Sequence[str] = (),
    seeds: int = SEEDS,
) -> str:
    """Compare adaptation methods on the labels of runs.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; the first one's settings are the base.
        encoder: name of an encoder in the settings, or a sentence-transformers model.
        out: folder or s3:// prefix of the comparison.
        settings: overrides of the first run's settings.
        methods: methods to compare; empty: all methods of `adapt`. `joint` is compared only if named.
        seeds: number of trainings per method.

    Returns:
        The path of the page.

    Raises:
        SettingsError: an unknown method.
        MissingPart: a method needs a package that is not installed, or a run's judge lacks a key or its server.
    """
    unknown = sorted(set(methods) - set(METHODS))
    if unknown:
        raise SettingsError(f"unknown method {unknown[0]}; choose from {', '.join(METHODS)}")
    compared = list(methods) or list(get_args(Method))
    for name in compared:
        check_parts(name)
    records = read_runs(runs)
    resolved = records[0].with_overrides(settings or {})
    base = open_base(records, encoder, resolved)
    run = output_run(out, ComparisonInputs)
    with run.lock():
        write_run(run, ComparisonInputs(runs=list(runs), encoder=encoder), resolved)
        judges = judges_of(base, records)
        for step in steps(base, resolved, compared, seeds, judges):
            if step.stage is ABLATION_STAGE and not step.plan(run).is_up_to_date:
                judges.check(resolved.adapt.unjudged_budget, resolve_tenant(list(base.sources), resolved.adapt.tenant))
            run_step(run, step)
        notes = [SERVED_AS_HYBRID] if resolved.adapt.serve_as == "hybrid" else []
        publish(run, page(run, list(runs), notes), PAGE)
        for sentence in [*notes, *explain_controls(run)]:
            reporter().say(sentence)
        reporter().table(f"Test queries: {deciding(run)}", by_system(run, deciding(run)))
    return f"Comparison: {run.store.path(PAGE)}"


def steps(
    base: BaseEncoder, settings: Settings, methods: list[str], seeds: int, judges: UnjudgedJudges = NO_JUDGES
) -> list[Step]:
    """The steps in data order; without judges, unjudged results stay unjudged."""
    adapt_settings = settings.adapt.but("tenant", "sources", "method", "unjudged_budget", "serve_as")
    measuring = settings.evaluate.only("n_resamples", "permutations")
    return [
        pairs_step(base, settings),
        terms_step(base, settings.adapt, methods, settings.seed),
        Step(ABLATION_STAGE, call(compare, adapt_settings, base, methods=methods, seeds=seeds)),
        Step(
            COMPARISON_UNJUDGED_STAGE,
            call(judge_unjudged, settings.adapt.unjudged_budget, judges, lists=COMPARISON_LISTS.name),
            lambda: contents(base),
        ),
        Step(COMPARISON_STAGE, call(comparison, measuring, seed=settings.seed)),
    ]


JOB = Job(
    "compare-adapters",
    compare_adapters,
    ComparisonInputs,
    lambda _run, inputs, settings: steps(unopened_base(inputs.encoder, settings), settings, [], SEEDS),
    sections=("adapting", *RUN_SECTIONS),
)
