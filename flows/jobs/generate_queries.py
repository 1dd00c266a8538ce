"""generate-queries: queries for texts that nobody searched for yet, sieved, found again and judged."""

from __future__ import annotations

from typing import Any

from darklode.flows import factories
from darklode.flows.executor import executor
from darklode.flows.jobs.build_benchmark import embed_and_search, judge_pool
from darklode.flows.jobs.registry import write_report
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.runs import GENERATED, note, read_inputs, read_notes, record
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Output, Run, Step, Tables, call
from darklode.pipeline.base.duckdb_views import views_sql
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.generate.card import card, summary_sentence
from darklode.pipeline.generate.filters import SIEVE, filter_generated
from darklode.pipeline.generate.generation import WRITE, write_queries
from darklode.pipeline.generate.kinds import GeneratorKind
from darklode.pipeline.generate.outcomes import OUTCOME, write_outcome
from darklode.pipeline.generate.port import QueryWriter
from darklode.pipeline.generate.round_trip import ROUND_TRIP, round_trip
from darklode.pipeline.generate.source_texts import TEXTS, sample_texts
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.judge.label import LABEL, write_qrels
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.retrieve.search import SEARCH
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.triplets.pooled import TRIPLETS_STAGE, triplets
from darklode.schemas.settings import Settings

STAGES = (TEXTS, WRITE, SIEVE, SEARCH, ROUND_TRIP, JUDGE, LABEL, TRIPLETS_STAGE, OUTCOME)
"""In data order."""


def generate_queries(source: str, out: str, settings: dict[str, Any] | None = None) -> str:
    """Write queries for texts of a run, and keep those that their texts answer.

    Args:
        source: folder or s3:// prefix of a build or a mined run.
        out: folder or s3:// prefix of the generated queries, which `adapt` takes as it takes a run.
        settings: what differs from the run's own settings.

    Returns:
        How many are kept.

    Raises:
        SettingsError: a retriever that is to be left out is none of the pool's.
        MissingPart: the writer, a retriever or the judge lacks something.
    """
    made = read_inputs(Run(source))
    chosen = made.with_overrides(settings or {})
    writer = as_kind(chosen.generate, GeneratorKind).writer(chosen)
    training_source = TrainingSource(Run(source), 0, made.is_mined, made.settings.mining.text_characters)
    run = _place(out)
    with run.lock(), spread_over(chosen.runner, run) as spread:
        record(run, {}, chosen)
        note(run, {GENERATED: source})
        factories.fetch_models(chosen)
        for step in steps(training_source, writer, chosen, spread):
            run_step(run, step)
        run.store.write("views.sql", views_sql(run).encode())
        text = card(run, chosen, source)
        run.store.write("README.md", text)
        write_report(run)
        executor().show(run, text.decode)
    return f"{summary_sentence(run)}."


def steps(source: TrainingSource, writer: QueryWriter, settings: Settings, spread: Spread = here) -> list[Step]:
    """The stages, in data order: from the queries on they are a build's."""
    generate_settings, seed = settings.generate, settings.seed
    judges = Judges.from_settings(settings)
    kind = as_kind(generate_settings, GeneratorKind)

    def as_source(tables: Tables, output: Output) -> None:
        judge_pool(tables, output, judges, spread, calibration=source.run.tables())

    return [
        Step(
            TEXTS,
            call(sample_texts, max_texts=generate_settings.max_texts, seed=seed),
            lambda: {f"the run {source.run.store.url}": source.content()},
            source=source,
        ),
        Step(
            WRITE,
            call(write_queries, writer, spread, seed=seed),
            lambda: {"the writer": writer.generator_id},
            untracked=("writer", "spread"),
        ),
        Step(
            SIEVE,
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
        Step(ROUND_TRIP, call(round_trip, depth=generate_settings.round_trip_depth)),
        Step(
            JUDGE,
            lambda: call(as_source),
            lambda: {"the judge": str(judges.identity), f"the run {source.run.store.url}": source.content()},
        ),
        Step(LABEL, call(write_qrels, settings.labels.model_copy(update={"human_overrides": False}))),
        Step(
            TRIPLETS_STAGE,
            call(triplets, settings.triplets, apart=False, source=GENERATED, spread=spread),
            untracked=("spread",),
        ),
        Step(OUTCOME, call(write_outcome, source=generate_settings.kind, generator_id=writer.generator_id, seed=seed)),
    ]


def retrievers(settings: Settings) -> dict[str, factories.Builder]:
    """Those of the pool that have a say.

    Raises:
        SettingsError: one that is to be left out is none of them, or none is left.
    """
    all_retrievers, out = factories.retrievers(settings), settings.generate.exclude_retrievers
    if unknown := sorted({*out} - {*all_retrievers}):
        raise SettingsError(
            f"generate.exclude_retrievers: {unknown[0]} is none of pool.retrievers: {', '.join(all_retrievers)}"
        )
    remaining = {name: builder for name, builder in all_retrievers.items() if name not in out}
    if not remaining:
        raise SettingsError("generate.exclude_retrievers leaves no retriever to find texts again")
    return remaining


def _place(out: str) -> Run:
    """Where the queries go.

    Raises:
        ArtifactError: something else lies there.
    """
    run = Run(out)
    if GENERATED not in read_notes(run) and run.store.root_names():
        raise ArtifactError(f"{run.store.url} holds something else than generated queries; choose another --out")
    return run
