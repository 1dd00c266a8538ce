"""build-benchmark: documents and a query log to a judged benchmark and triplets."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from darklode.flows import factories
from darklode.flows.config import load_settings, read_project, without_judge
from darklode.flows.executor import executor
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.paths import FlowPath
from darklode.flows.prefect.progress import reporter
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.preflight import build_checks, check_flow
from darklode.flows.runs import benchmark_preset, output_run, write_run
from darklode.flows.sources import fetched, local_path
from darklode.flows.stage_runner import finish, report_leakage, run_step
from darklode.pipeline.base.artifacts import Output, Run, StageCall, Step, Tables, call
from darklode.pipeline.base.card import document
from darklode.pipeline.base.errors import StageUnfinished
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.evaluate.audit import AUDIT_STAGE, audit
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.judgments import INGEST_JUDGMENTS, ingest_judgments
from darklode.pipeline.ingest.queries import INGEST_QUERIES, ingest_queries
from darklode.pipeline.ingest.sources.fetch import Role
from darklode.pipeline.judge.calibration import CALIBRATE, calibrate, calibrated_judge
from darklode.pipeline.judge.factory import Judges, answering_kinds
from darklode.pipeline.judge.label import LABEL, OVERRIDING_LABEL, write_labels
from darklode.pipeline.judge.prefetch import prefetch_verdicts
from darklode.pipeline.judge.probe.stage import PROBE_STAGE, no_new_texts, probe_judge
from darklode.pipeline.judge.stage import ADAPTIVE_JUDGE, JUDGE, judge
from darklode.pipeline.prepare.chunk import CHUNK, chunk
from darklode.pipeline.prepare.clean import CLEAN, clean
from darklode.pipeline.prepare.split import GENERATED_TABLE, SPLIT, split
from darklode.pipeline.retrieve.embedding import embed_all
from darklode.pipeline.retrieve.judged_chunks import JUDGED_CHUNKS_STAGE, judged_chunks
from darklode.pipeline.retrieve.pool import POOL_STAGE, pool
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.retrieve.search import SEARCH, search
from darklode.pipeline.triplets.held_out import HELD_OUT, held_out
from darklode.pipeline.triplets.pooled import TRIPLETS_STAGE, triplets
from darklode.schemas.judging import NO_JUDGE
from darklode.schemas.pooling import PoolSettings
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings


def build_benchmark(  # noqa: PLR0913 (the parameters of the Prefect flow)
    docs: FlowPath | None = None,
    queries: FlowPath | None = None,
    out: FlowPath | None = None,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    estimate: bool = False,
    *,
    qrels: FlowPath | None = None,
    config: FlowPath | None = None,
) -> None:
    """Build a labelled dataset; a second run redoes only what changed.

    Args:
        docs: file or folder of documents; default: `paths.docs` of `config`.
        queries: file or folder of queries; default: `paths.queries` of `config`.
        out: the run's folder or s3:// prefix; default: `paths.out` of `config`.
        preset: base of the settings.
        settings: overrides of preset and config, as nested sections.
        estimate: stop before the judge, and estimate time and cost of judging from a sample of calls.
        qrels: file or folder of relevance judgments; default: `paths.qrels` of `config`, if it has one. No judge runs
            unless the settings name one.
        config: settings file with paths, as `darklode init` writes it, on the machine that runs the job.

    Raises:
        StageUnfinished: the judge stopped while it was probed; everything else is complete.
    """
    project = read_project(config, preset, default="")
    docs, queries, out = project.place("docs", docs), project.place("queries", queries), project.place("out", out)
    qrels = qrels if qrels is not None else project.paths.get("qrels")
    values = without_judge(project.preset, config, settings or {}) if qrels else settings
    resolved = load_settings(project.preset or benchmark_preset(out), config, values=values)
    check_flow(lambda: build_checks(docs, queries, out, resolved, qrels))
    run = output_run(out, BenchmarkInputs)
    with run.lock(), spread_over(resolved.runner, run) as spread, ExitStack() as sources:
        inputs = BenchmarkInputs(docs=docs, queries=queries, qrels=qrels)
        write_run(run, inputs, resolved)
        factories.fetch_models(resolved)
        sources.enter_context(fetched(run, resolved, _paths(inputs)))
        unfinished: StageUnfinished | None = None
        for step in _steps_of(run, inputs, resolved, spread):
            if estimate and step.stage.name == CALIBRATE.name:  # the first that may call the judge
                show_estimate(run, resolved)
                return
            try:
                run_step(run, step)
            except StageUnfinished as error:  # the probes, the last stage: the pages say what is missing
                unfinished = error
        report_leakage(run)
        finish(run)
        if unfinished:
            raise unfinished


def _paths(inputs: BenchmarkInputs) -> dict[Role, str]:
    qrels: dict[Role, str] = {"qrels": inputs.qrels} if inputs.qrels else {}
    return {"docs": inputs.docs, "queries": inputs.queries, **qrels}


def _steps_of(run: Run, inputs: BenchmarkInputs, settings: Settings, spread: Spread = here) -> list[Step]:
    """The steps of a run, which read the snapshots of sources that are no local files."""
    paths = {role: local_path(run, role, path, settings) for role, path in _paths(inputs).items()}
    return steps(paths["docs"], paths["queries"], settings, spread, paths.get("qrels"))


def steps(docs: str, queries: str, settings: Settings, spread: Spread = here, qrels: str | None = None) -> list[Step]:
    """The steps in data order; `qrels` are relevance judgments, if any are given."""
    return [
        *_ingest_steps(docs, queries, settings, spread, qrels),
        *_pool_steps(settings, spread, qrels),
        *_label_steps(settings, spread, qrels),
        Step(
            TRIPLETS_STAGE,
            call(
                triplets,
                settings.triplets,
                apart="positive" in settings.split.group_by,
                is_judged=settings.judge.kind != NO_JUDGE,
                spread=spread,
            ),
            untracked=("spread",),
        ),
        Step(HELD_OUT.reading("queries", "qrels", "training_labels", "chunks"), call(held_out)),
        Step(
            AUDIT_STAGE,
            call(audit, settings.evaluate.only("n_resamples"), depth=settings.pool.depth, seed=settings.seed),
        ),
        *([probe_step(settings, qrels)] if is_probed(Judges.from_settings(settings)) else []),
    ]


def _ingest_steps(docs: str, queries: str, settings: Settings, spread: Spread, qrels: str | None) -> list[Step]:
    """Documents, queries and judgments, up to the splits."""
    judged = ("judgments",) if qrels else ()
    return [
        Step(
            INGEST_DOCUMENTS,
            call(ingest_documents, settings.ingest.but("queries")),
            lambda: {"the documents' files": source_fingerprint(docs)},
            source=docs,
        ),
        Step(
            INGEST_QUERIES,
            call(ingest_queries, settings.ingest.but("documents")),
            lambda: {"the queries' files": source_fingerprint(queries)},
            source=queries,
        ),
        Step(CHUNK, call(chunk, settings.chunk, spread), untracked=("spread",)),
        *(
            [
                Step(
                    INGEST_JUDGMENTS,
                    call(ingest_judgments, settings.ingest.but("queries", "documents"), path=qrels),
                    lambda: {"the judgments' files": source_fingerprint(qrels)},
                    untracked=("path",),
                )
            ]
            if qrels
            else []
        ),
        Step(CLEAN.reading(*judged), call(clean, settings.clean, seed=settings.seed)),
        Step(
            SPLIT.reading(*judged),
            call(split, settings.split.but("group_by"), seed=settings.seed),
            lambda: (
                {"the generated queries": _content(settings.split.generated_queries)}
                if settings.split.generated_queries
                else {}
            ),
        ),
    ]


def _pool_steps(settings: Settings, spread: Spread, qrels: str | None) -> list[Step]:
    """Rankings of the retrievers, and the candidates."""
    return [
        *([Step(JUDGED_CHUNKS_STAGE, call(judged_chunks))] if qrels else []),
        Step(
            SEARCH,
            call(embed_and_search, settings.pool.only("search_depth"), factories.retrievers(settings), spread),
            untracked=("spread",),
        ),
        Step(POOL_STAGE.reading(*(("judged_chunks",) if qrels else ())), call(pool, settings.pool)),
    ]


def _label_steps(settings: Settings, spread: Spread, qrels: str | None) -> list[Step]:
    """Verdicts of the judge and labels of people, and the label sets made of them."""
    seed, judges = settings.seed, Judges.from_settings(settings)
    human = settings.judge.human_labels
    has_labels, has_judge = bool(human or qrels), settings.judge.kind != NO_JUDGE
    judging = ADAPTIVE_JUDGE if settings.judge.strategy == "adaptive" and has_judge else JUDGE
    judged = ("judged_chunks",) if qrels else ()
    labels = settings.labels.model_copy(update={"human_overrides": True}) if qrels else settings.labels
    return [
        Step(
            CALIBRATE.reading(*judges.tables_read, *judged),
            call(_calibrate, judges, tenant=settings.ingest.tenant, seed=seed) if has_labels else call(_nothing),
            lambda: {"the human labels": source_fingerprint(human)} if human else {},
        ),
        Step(
            judging.reading(*judges.tables_read, *_calibration_tables(settings, judges, qrels)),
            _judging(judges, spread, seed, is_adaptive=judging is ADAPTIVE_JUDGE) if has_judge else call(_nothing),
            untracked=("spread",) if has_judge else (),
        ),
        Step(
            (OVERRIDING_LABEL if labels.human_overrides else LABEL).reading("calibration", *judged),
            call(write_labels, labels),
        ),
    ]


def is_probed(judges: Judges) -> bool:
    """Whether a build probes the judge: if it, or a judge of its panel or cascade, is a language model."""
    has_model = any(kind.IS_PROBED for kind in answering_kinds(judges.settings))
    return has_model and judges.settings.probe_pairs > 0 and no_new_texts(judges) is None


def probe_step(settings: Settings, qrels: str | None = None) -> Step:
    """The step that probes the judge of a run, whatever its kind."""
    judges = Judges.from_settings(settings)
    return Step(
        PROBE_STAGE.reading(*judges.tables_read, *_calibration_tables(settings, judges, qrels)),
        call(probe_judge, judges, probe_pairs=settings.judge.probe_pairs, seed=settings.seed),
    )


def _calibration_tables(settings: Settings, judges: Judges, qrels: str | None) -> list[str]:
    """Tables from which the judge is calibrated or trained."""
    has_labels = bool(settings.judge.human_labels or qrels)
    is_calibrated = settings.judge.threshold == "fitted" or (has_labels and settings.judge.can_fit_grades)
    return ["calibration"] * is_calibrated + ["human_labels"] * (has_labels and judges.can_learn)


def _judging(judges: Judges, spread: Spread, seed: int, *, is_adaptive: bool) -> StageCall:
    """The call of the judge; only adaptive judging depends on the seed."""
    return call(judge_pool, judges, spread, seed=seed) if is_adaptive else call(judge_pool, judges, spread)


def _content(folder: str) -> str:
    """Fingerprint of generated queries; empty if the folder has none, which the stage then reports."""
    generated = Run(folder)
    return generated.tables(GENERATED_TABLE).content(GENERATED_TABLE) if GENERATED_TABLE in generated.parts() else ""


def show_estimate(run: Run, settings: Settings) -> None:
    """Report the estimated time and cost of judging."""
    estimates = factories.judge_estimates(settings, run.tables("queries", "chunks", "pool"))
    shown = {f"Estimated judging: {name}": table for name, table in estimates.items()}
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
    """Fill the embedding cache, then search: embedding and search are sharded differently."""
    builders = factories.with_members(retrievers).values()
    neural = [builder for builder in builders if isinstance(builder, NeuralBuilder)]
    if neural:
        embed_all(tables, output, {builder.name: builder.encoder for builder in neural}, neural[0].cache, spread=spread)
    search(tables, output, pool, retrievers=retrievers, spread=spread)


def _calibrate(tables: Tables, output: Output, judges: Judges, *, tenant: str, seed: int) -> None:
    calibrate(tables, output, judges.settings, judge_for=judges, tenant=tenant, seed=seed)


def _nothing(tables: Tables, output: Output) -> None:
    """A stage without rows."""


def judge_pool(
    tables: Tables,
    output: Output,
    judges: Judges,
    spread: Spread,
    *,
    calibration: Tables | None = None,
    seed: int = 0,
) -> None:
    """Judge the pool, with the fitted threshold and the training labels of the calibration.

    On a cluster, the strategy `full` prefetches all verdicts; each round of `adaptive` depends on the previous one.

    Args:
        tables: contains `queries`, `chunks` and `pool`.
        output: receives verdicts.
        judges: judges from the settings.
        spread: where verdicts are prefetched.
        calibration: tables of another run with the calibration; None: `tables`.
        seed: random seed of the pairs sampled by the adaptive strategy.
    """
    ahead = spread is not here and judges.settings.strategy == "full"
    n_prefetched = prefetch_verdicts(tables, output, judges.settings, judges.cache, spread) if ahead else 0
    judge(tables, output, judges.settings, judge_for=calibrated_judge(calibration or tables, judges), seed=seed)
    if n_prefetched:
        output.facts["asked"] += n_prefetched
        output.facts["hits"] -= n_prefetched


JOB = Job(
    "build-benchmark",
    build_benchmark,
    BenchmarkInputs,
    _steps_of,
    can_plan=True,
    sections=RUN_SECTIONS,
)
