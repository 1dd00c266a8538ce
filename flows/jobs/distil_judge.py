"""distil-judge: a small cross-encoder from the verdicts of a run's judge, compared with it on unseen queries."""

from __future__ import annotations

from typing import Any

from darklode.flows import factories
from darklode.flows.jobs.job import Job
from darklode.flows.jobs.train_reranker import initial_reranker
from darklode.flows.runs import output_run, read_benchmark, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, Tables, call
from darklode.pipeline.base.chunk_texts import tenants
from darklode.pipeline.base.errors import ArtifactError, NoLift, SettingsError
from darklode.pipeline.base.models.loading import fetch_model
from darklode.pipeline.base.models.local import require_tenant
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.reranker.distil.evaluation import (
    PREDICTIONS_STAGE,
    pairs_per_second,
    predict_held_out,
    require_agreement,
)
from darklode.pipeline.reranker.distil.sampling import DISTILLED_PAIRS_STAGE, SOURCE_TABLES, distilled_pairs
from darklode.pipeline.reranker.distil.training import DISTILLED_JUDGE_STAGE, train_distilled
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.schemas.run_inputs import DistilledJudgeInputs
from darklode.schemas.settings import Settings

TEACHER_SQL = "SELECT DISTINCT judge_id FROM verdicts WHERE tenant = $1 ORDER BY judge_id"


def distil_judge(
    run: str, base: str, out: str, settings: dict[str, Any] | None = None, min_agreement: float | None = None
) -> str:
    """Train a small judge on a run's verdicts, and compare it with the judge that gave them.

    Args:
        run: folder or s3:// prefix of a judged build.
        base: initial model: a cross-encoder, or a bi-encoder, which gets a new head; a name of an encoder in the
            settings, a model's name or a folder.
        out: folder or s3:// prefix of the distilled judge.
        settings: overrides of the run's settings.
        min_agreement: minimum kappa with the teacher on test queries.

    Returns:
        The comparison.

    Raises:
        NoLift: the distilled judge agrees clearly less than its teacher; it is saved all the same.
        ArtifactError: the run is not judged, or has too few verdicts.
        MissingPart: a model or a package is missing.
        SettingsError: the run's judge is a cascade, or the base has no weights.
        DoesNotFit: the base was trained on another tenant's labels.
    """
    from darklode.pipeline.reranker.distil.folder import save_distilled

    judged = Run(run)
    record, _ = read_benchmark(judged)
    resolved = record.with_overrides(settings or {})
    check_parts("full")
    if record.settings.judge.kind == "cascade":
        raise SettingsError(f"{run} was judged by a cascade; distil from a run that its large judge judged alone")
    model = factories.encoder(base, resolved)
    if not isinstance(model, SentenceTransformersSettings):
        raise SettingsError(f"encoders.{base} is of kind {model.kind}; --base needs a model with its weights")
    fetch_model(model)
    if "verdicts" not in judged.parts():
        raise ArtifactError(f"{run} is not judged yet; complete `darklode build` first")
    tenant = resolve_tenant(judged, resolved.adapt.tenant)
    teacher = judged.tables("verdicts").sql(TEACHER_SQL, [tenant])["judge_id"].to_pylist()
    require_tenant(model, tenant)
    folder = output_run(out, DistilledJudgeInputs)
    with folder.lock():
        inputs = DistilledJudgeInputs(run=run, base=base, min_agreement=min_agreement)
        write_run(folder, inputs, resolved)
        source = source_tables(judged)
        for step in steps(judged, source, tenant, model, resolved):
            run_step(folder, step)
        initial = initial_reranker(model, resolved)
        save_distilled(folder, source, initial, teacher)
        _write_pages(folder, initial, resolved, run, teacher)
    return require_agreement(folder.manifests()[PREDICTIONS_STAGE.name].facts, min_agreement)


def source_tables(judged: Run) -> Tables:
    """The judged run's tables that distillation reads."""
    labels = ("human_labels",) if "human_labels" in judged.parts() else ()
    return judged.tables(*SOURCE_TABLES, *labels)


def resolve_tenant(judged: Run, requested: str | None) -> str:
    """The requested tenant, or the only one: a judge is distilled from one tenant's texts.

    Raises:
        ArtifactError: the run has several tenants and none is named, or not the named one.
    """
    names = tenants(judged.tables("pool"), "pool")
    if requested is None and len(names) > 1:
        raise ArtifactError(
            f"the run contains the tenants {', '.join(names)}; a judge is distilled for one: --set adapt.tenant=NAME"
        )
    if not names or (requested is not None and requested not in names):
        raise ArtifactError(f"the run has no pool of the tenant {requested}; there are {', '.join(names) or 'none'}")
    return requested or names[0]


def steps(
    judged: Run, source: Tables, tenant: str, model: SentenceTransformersSettings, settings: Settings
) -> list[Step]:
    """The steps in data order.

    Args:
        judged: the judged run.
        source: its tables.
        tenant: the tenant.
        model: the initial model.
        settings: the settings; `reranker` has those of training.
    """
    seed, initial = settings.seed, initial_reranker(model, settings)
    training = settings.reranker.but("num_negatives", "eval_queries")
    n_draws = training.max_steps * training.batch_size
    return [
        Step(
            DISTILLED_PAIRS_STAGE,
            call(distilled_pairs, source, tenant, n_draws, seed=seed),
            lambda: {
                f"the run {judged.store.url}, {name}": source.content(name)
                for name in (*SOURCE_TABLES, "human_labels")
                if name in source
            },
            untracked=("source",),
        ),
        Step(DISTILLED_JUDGE_STAGE, call(train_distilled, training, source, initial), untracked=("source",)),
        Step(
            PREDICTIONS_STAGE,
            call(
                predict_held_out,
                source,
                initial,
                teacher_rate=pairs_per_second(judged.manifest(JUDGE)),
                seed=seed,
            ),
            untracked=("source",),
        ),
    ]


def _write_pages(folder: Run, initial: Any, settings: Settings, judged: str, teacher: list[str]) -> None:
    """Write card and views."""
    from darklode.pipeline.reranker.distil.card import card

    publish(folder, card(folder, settings, initial, judged, teacher))


def _folder_steps(_run: Run, inputs: DistilledJudgeInputs, settings: Settings) -> list[Step]:
    """The steps; nothing is opened."""
    judged = Run(inputs.run)
    return steps(judged, judged.tables(), "", SentenceTransformersSettings(model=inputs.base), settings)


JOB = Job("distil-judge", distil_judge, DistilledJudgeInputs, _folder_steps, refusals=(NoLift,))
