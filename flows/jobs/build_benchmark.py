"""build-benchmark: documents and a query log in, a judged benchmark and triplets out."""

from collections.abc import Mapping
from typing import Any

from darklode.flows import factories
from darklode.flows.config import load_settings, read_project
from darklode.flows.executor import executor, preflight
from darklode.flows.paths import Place
from darklode.flows.prefect.progress import reporter
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.runs import output_run, record
from darklode.flows.stage_runner import finish, run_step
from darklode.pipeline.base.artifacts import Output, Run, Step, Tables, call
from darklode.pipeline.base.card import document
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.evaluate.audit import AUDIT, audit
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.queries import INGEST_QUERIES, ingest_queries
from darklode.pipeline.judge.calibration import CALIBRATE, calibrate, calibrated_judge
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.judge.label import LABEL, OVERRIDING_LABEL, write_qrels
from darklode.pipeline.judge.prefetch import prefetch_verdicts
from darklode.pipeline.judge.stage import ADAPTIVE_JUDGE, JUDGE, judge
from darklode.pipeline.prepare.chunk import CHUNK, chunk
from darklode.pipeline.prepare.clean import CLEAN, clean
from darklode.pipeline.prepare.split import GENERATED, SPLIT, split
from darklode.pipeline.retrieve.embedding import embed_all
from darklode.pipeline.retrieve.pool import POOL_STAGE, pool
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.retrieve.search import SEARCH, search
from darklode.pipeline.triplets.held_out import HELD_OUT, held_out
from darklode.pipeline.triplets.pooled import TRIPLETS_STAGE, triplets
from darklode.schemas.pooling import PoolSettings
from darklode.schemas.settings import Settings


def build_benchmark(  # noqa: PLR0913 (they are the form in which Prefect asks for a run)
    docs: Place | None = None,
    queries: Place | None = None,
    out: Place | None = None,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    estimate: bool = False,
    *,
    config: Place | None = None,
) -> None:
    """Build a labelled dataset; run again, it does only what changed.

    Args:
        docs: file or folder of documents; by default the config's.
        queries: file or folder of queries, likewise.
        out: the run's folder or s3:// prefix, likewise.
        preset: where the settings start from.
        settings: what differs from preset and config, as nested sections.
        estimate: stop before the judge, and show what judging will take by a sample of its calls.
        config: settings file with paths, as `darklode init` writes it, on the machine that works.
    """
    config_file = read_project(config, preset)
    chosen = load_settings(config_file.preset, config, values=settings)
    docs, queries = config_file.place("docs", docs), config_file.place("queries", queries)
    out = config_file.place("out", out)
    preflight(lambda checks: checks.of_build(docs, queries, out, chosen))
    run = output_run(out, mined=False)
    with run.lock(), spread_over(chosen.runner, run) as spread:
        record(run, {"docs": docs, "queries": queries}, chosen)
        factories.fetch_models(chosen)
        job = steps(docs, queries, chosen, spread)
        for step in job:
            if estimate and step.stage.name == JUDGE.name:
                show_estimate(run, chosen)
                return
            run_step(run, step)
        finish(run, chosen, job)


def steps(docs: str, queries: str, settings: Settings, spread: Spread = here) -> list[Step]:
    """The stages, in data order."""
    config, seed, judges = settings, settings.seed, Judges.from_settings(settings)
    human, fitted = settings.judge.human_labels, settings.judge.threshold == "fitted"
    judging = ADAPTIVE_JUDGE if settings.judge.strategy == "adaptive" else JUDGE
    taken = ["calibration"] * fitted + ["human_labels"] * (human is not None and judges.can_learn)
    return [
        Step(
            INGEST_DOCUMENTS,
            call(ingest_documents, config.ingest.but("queries")),
            lambda: {"the documents' files": source_fingerprint(docs)},
            source=docs,
        ),
        Step(
            INGEST_QUERIES,
            call(ingest_queries, config.ingest.but("documents")),
            lambda: {"the queries' files": source_fingerprint(queries)},
            source=queries,
        ),
        Step(CLEAN, call(clean, config.clean, seed=seed)),
        Step(
            SPLIT,
            call(split, config.split.but("group_by"), seed=seed),
            lambda: (
                {"the generated queries": _content(config.split.generated_queries)}
                if config.split.generated_queries
                else {}
            ),
        ),
        Step(CHUNK, call(chunk, config.chunk, spread), untracked=("spread",)),
        Step(
            SEARCH,
            call(embed_and_search, config.pool.only("search_depth"), factories.retrievers(config), spread),
            untracked=("spread",),
        ),
        Step(POOL_STAGE, call(pool, config.pool)),
        Step(
            CALIBRATE.reading(*judges.tables_read),
            call(_calibrate, judges, tenant=config.ingest.tenant, seed=seed) if human else call(_nothing),
            lambda: {"the human labels": source_fingerprint(human)} if human else {},
        ),
        Step(
            judging.reading(*judges.tables_read, *taken),
            call(judge_pool, judges, spread, seed=seed)
            if judging is ADAPTIVE_JUDGE
            else call(judge_pool, judges, spread),
            untracked=("spread",),
        ),
        Step(OVERRIDING_LABEL if config.labels.human_overrides else LABEL, call(write_qrels, config.labels)),
        Step(
            TRIPLETS_STAGE,
            call(triplets, config.triplets, apart=config.split.group_by == "cluster_and_positives", spread=spread),
            untracked=("spread",),
        ),
        Step(HELD_OUT.reading("queries", "qrels", "chunks"), call(held_out)),
        Step(AUDIT, call(audit, config.evaluate.only("n_resamples"), depth=config.pool.depth, seed=seed)),
    ]


def _content(folder: str) -> str:
    """Identifies generated queries; of a folder that holds none, which the stage will say, nothing."""
    generated = Run(folder)
    return generated.tables(GENERATED).content(GENERATED) if GENERATED in generated.parts() else ""


def show_estimate(run: Run, settings: Settings) -> None:
    """Say what judging will take."""
    estimates = factories.judge_estimates(settings, run.tables("queries", "chunks", "pool"))
    shown = {f"What judging will take: {name}": table for name, table in estimates.items()}
    executor().show(run, lambda: document([], ((title, table, "") for title, table in shown.items()), []))
    for title, table in shown.items():
        reporter().table(title, table)


def embed_and_search(
    tables: Tables,
    output: Output,
    pool: PoolSettings,
    retrievers: Mapping[str, factories.Builder],
    spread: Spread,
) -> None:
    """Fill the embedding cache first, whose shards are not those of the search."""
    neural = [builder for builder in retrievers.values() if isinstance(builder, NeuralBuilder)]
    if neural:
        embed_all(tables, output, {builder.name: builder.encoder for builder in neural}, neural[0].cache, spread=spread)
    search(tables, output, pool, retrievers=retrievers, spread=spread)


def _calibrate(tables: Tables, output: Output, judges: Judges, *, tenant: str, seed: int) -> None:
    calibrate(tables, output, judges.settings, judge_for=judges, tenant=tenant, seed=seed)


def _nothing(tables: Tables, output: Output) -> None:
    """Leave the stage's tables empty."""


def judge_pool(
    tables: Tables,
    output: Output,
    judges: Judges,
    spread: Spread,
    *,
    calibration: Tables | None = None,
    seed: int = 0,
) -> None:
    """Judge; from the calibration come a fitted threshold, and the labels that teach a judge that learns.

    Elsewhere, all is asked ahead at full depth; a round of adaptive judging hangs on the one before it.

    Args:
        tables: hold `queries`, `chunks` and `pool`.
        output: takes verdicts.
        judges: of the settings.
        spread: where they are asked ahead.
        calibration: another run's tables where its calibration holds.
        seed: of the pairs drawn at adaptive depth.
    """
    ahead = spread is not here and judges.settings.strategy == "full"
    n_prefetched = prefetch_verdicts(tables, output, judges.settings, judges.cache, spread) if ahead else 0
    judge(tables, output, judges.settings, judge_for=calibrated_judge(calibration or tables, judges), seed=seed)
    if n_prefetched:
        output.facts["asked"] += n_prefetched
        output.facts["hits"] -= n_prefetched
