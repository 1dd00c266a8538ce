"""compare-adapters: every way to adapt a query encoder, with controls, on the same queries, steps and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import yaml

from darklode.flows.executor import executor
from darklode.flows.jobs.adapt_encoder import contents, judges_of, open_base, pairs_step, place
from darklode.flows.prefect.progress import reporter
from darklode.flows.runs import ADAPTED, SETTINGS, note, read_inputs
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.duckdb_views import views_sql
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.train.data.sources import resolve_tenant
from darklode.pipeline.train.data.unjudged import COMPARED_HOLES, NOBODY, UnjudgedJudges, judge_unjudged
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.ablation import COMPARED, compare
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.pipeline.train.release.comparison import (
    METHODS,
    PAGE,
    SUMMED,
    by_system,
    comparison,
    deciding,
    explain_controls,
    page,
)
from darklode.schemas.adaptation import SEEDS, Method
from darklode.schemas.adaptation_tables import COMPARISON_LISTS
from darklode.schemas.settings import Settings


def compare_adapters(
    runs: Sequence[str],
    encoder: str,
    out: str,
    settings: dict[str, Any] | None = None,
    methods: Sequence[str] = (),
    seeds: int = SEEDS,
) -> str:
    """Compare the ways to adapt a query encoder to the labels of runs.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; settings start from those of the first.
        encoder: a name among the settings' encoders, or a sentence-transformers model.
        out: folder or s3:// prefix of the comparison.
        settings: what differs from the first run's own settings.
        methods: those to compare; none: all that `adapt` has. `joint` is compared only where it is named.
        seeds: how often each is trained.

    Returns:
        Where the page is.

    Raises:
        SettingsError: there is no such method.
        MissingPart: one needs what is not installed, or a judge of the runs lacks a key or its server.
    """
    unknown = sorted(set(methods) - set(METHODS))
    if unknown:
        raise SettingsError(f"there is no method {unknown[0]}; there are {', '.join(METHODS)}")
    compared = list(methods) or list(get_args(Method))
    for name in compared:
        check_parts(name)
    made = [read_inputs(Run(url)) for url in runs]
    chosen = made[0].with_overrides(settings or {})
    base = open_base(runs, made, encoder, chosen)
    run = place(out)
    with run.lock():
        note(run, {ADAPTED: list(runs), "encoder": encoder})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        judges = judges_of(base, made)
        for step in compared_settings(base, chosen, compared, seeds, judges):
            if step.stage is COMPARED and not step.plan(run).is_up_to_date:
                judges.check(chosen.adapt.unjudged_budget, resolve_tenant(list(base.sources), chosen.adapt.tenant))
            run_step(run, step)
        text = page(run, list(runs))
        run.store.write(PAGE, text)
        run.store.write("views.sql", views_sql(run).encode())
        for sentence in explain_controls(run):
            reporter().say(sentence)
        reporter().table(f"Test queries: {deciding(run)}", by_system(run, deciding(run)))
        executor().show(run, text.decode)
    return f"The comparison is in {run.store.path(PAGE)}"


def compared_settings(
    base: BaseEncoder, settings: Settings, methods: list[str], seeds: int, judges: UnjudgedJudges = NOBODY
) -> list[Step]:
    """The stages, in data order; without judges no hole is judged."""
    adapt_settings = settings.adapt.but("tenant", "sources", "min_probability", "method", "unjudged_budget")
    measuring = settings.evaluate.only("n_resamples", "permutations")
    return [
        pairs_step(base, settings),
        Step(COMPARED, call(compare, adapt_settings, base, methods=methods, seeds=seeds)),
        Step(
            COMPARED_HOLES,
            call(judge_unjudged, settings.adapt.unjudged_budget, judges, lists=COMPARISON_LISTS.name),
            lambda: contents(base),
        ),
        Step(SUMMED, call(comparison, measuring, seed=settings.seed)),
    ]
