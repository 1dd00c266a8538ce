"""generate-queries: synthetic queries for a run's texts, filtered, retrieved and judged."""

from __future__ import annotations

from typing import Any

from darklode.flows import factories
from darklode.flows.jobs.build_benchmark import embed_and_search, judge_pool
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.report import write_report
from darklode.flows.runs import output_run, read_run, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Output, Run, Step, Tables, call
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.generate.card import card, summary_sentence
from darklode.pipeline.generate.filters import FILTER_STAGE, filter_generated
from darklode.pipeline.generate.generation import WRITE_STAGE, write_queries
from darklode.pipeline.generate.kinds import GeneratorKind
from darklode.pipeline.generate.kinds.ict import InverseClozeWriter
from darklode.pipeline.generate.outcomes import OUTCOME_STAGE, write_outcome
from darklode.pipeline.generate.port import QueryWriter
from darklode.pipeline.generate.round_trip import ROUND_TRIP_STAGE, round_trip
from darklode.pipeline.generate.source_texts import TEXTS_STAGE, sample_texts
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.judge.label import LABEL, write_labels
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.retrieve.search import SEARCH
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.triplets.pooled import TRIPLETS_STAGE, triplets
from darklode.schemas.run_inputs import GeneratedInputs
from darklode.schemas.settings import Settings

TRIPLET_SOURCE = "generated"
"""The source of the triplets."""


def generate_queries(source: str, out: str, settings: dict[str, Any] | None = None) -> str:
    """Write queries for texts of a run, and keep those whose texts answer them.

    Args:
        source: folder or s3:// prefix of a build or a mined run.
        out: folder or s3:// prefix of the generated queries; `adapt` takes it like a run.
        settings: overrides of the run's settings.

    Returns:
        How many queries were kept.

    Raises:
        SettingsError: `generate.exclude_retrievers` names a retriever that is not in the pool.
        MissingPart: the query writer, a retriever or the judge lacks a key, a server or a package.
    """
    record = read_run(Run(source))
    resolved = record.with_overrides(settings or {})
    writer = as_kind(resolved.generate, GeneratorKind).writer(resolved)
    run = output_run(out, GeneratedInputs)
    with run.lock(), spread_over(resolved.runner, run) as spread:
        write_run(run, GeneratedInputs(source=source), resolved)
        factories.fetch_models(resolved)
        for step in steps(record.training_source(), writer, resolved, spread):
            run_step(run, step)
        publish(run, card(run, resolved, source))
        write_report(run)
    return f"{summary_sentence(run)}."


def steps(source: TrainingSource, writer: QueryWriter, settings: Settings, spread: Spread = here) -> list[Step]:
    """The steps in data order; from the search on they are those of a build."""
    generate_settings, seed = settings.generate, settings.seed
    judges = Judges.from_settings(settings)
    kind = as_kind(generate_settings, GeneratorKind)

    def as_source(tables: Tables, output: Output) -> None:
        judge_pool(tables, output, judges, spread, calibration=source.run.tables())

    return [
        Step(
            TEXTS_STAGE,
            call(sample_texts, max_texts=generate_settings.max_texts, seed=seed),
            lambda: {f"the run {source.run.store.url}": source.content()},
            source=source,
        ),
        Step(
            WRITE_STAGE,
            call(write_queries, writer, spread, seed=seed, min_new_share=generate_settings.min_new_share),
            lambda: {"the writer": writer.generator_id},
            untracked=("writer", "spread"),
        ),
        Step(
            FILTER_STAGE,
            lambda: call(
                filter_generated,
                settings.clean.only("language", "language_threshold"),
                source.run.tables(),
                copies=kind.COPIES,
            ),
            lambda: {f"the run {source.run.store.url}": source.content()},
            untracked=("documents",),
        ),
        Step(
            SEARCH,
            call(embed_and_search, settings.pool.only("search_depth"), retrievers(settings), spread),
            untracked=("spread",),
        ),
        Step(ROUND_TRIP_STAGE, call(round_trip, depth=generate_settings.round_trip_depth)),
        Step(
            JUDGE,
            lambda: call(as_source),
            lambda: {"the judge": str(judges.identity), f"the run {source.run.store.url}": source.content()},
        ),
        Step(LABEL, call(write_labels, settings.labels.model_copy(update={"human_overrides": False}))),
        Step(
            TRIPLETS_STAGE,
            call(triplets, settings.triplets, apart=False, source=TRIPLET_SOURCE, spread=spread),
            untracked=("spread",),
        ),
        Step(
            OUTCOME_STAGE,
            call(write_outcome, source=generate_settings.kind, generator_id=writer.generator_id, seed=seed),
        ),
    ]


def retrievers(settings: Settings) -> dict[str, factories.Builder]:
    """The retrievers of the pool except `generate.exclude_retrievers`.

    Raises:
        SettingsError: `generate.exclude_retrievers` names an unknown retriever, or leaves none.
    """
    all_retrievers, out = factories.retrievers(settings), settings.generate.exclude_retrievers
    if unknown := sorted({*out} - {*all_retrievers}):
        raise SettingsError(
            f"generate.exclude_retrievers: {unknown[0]} is not in pool.retrievers ({', '.join(all_retrievers)})"
        )
    remaining = {name: builder for name, builder in all_retrievers.items() if name not in out}
    if not remaining:
        raise SettingsError("generate.exclude_retrievers leaves no retriever; keep at least one of pool.retrievers")
    return remaining


def _folder_steps(_run: Run, inputs: GeneratedInputs, settings: Settings) -> list[Step]:
    """The steps by name; another writer stands in, since the real one may need a model or a server."""
    source = TrainingSource(Run(inputs.source), 0, False, settings.mining.text_characters)
    return steps(source, InverseClozeWriter(), settings)


JOB = Job("generate-queries", generate_queries, GeneratedInputs, _folder_steps, sections=("generating", *RUN_SECTIONS))
