"""train-towers: both towers from triplets (stage 1), or a distilled query tower from queries (stage 2)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from darklode.flows.jobs import train_both_towers as stage_one
from darklode.flows.jobs.adapt_encoder import open_base, pairs_step, unopened_base
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.runs import output_run, read_runs, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import DoesNotFit, SettingsError
from darklode.pipeline.evaluate.stage import EVALUATION_STAGE, evaluate
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.queries import INGEST_QUERIES
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.evaluation import MEASURES, SYSTEMS, TOWER_TEST_STAGE, test_student
from darklode.pipeline.towers.queries import QUERIES_STAGE, content, read_files, tower_queries
from darklode.pipeline.towers.stage import DISTIL_STAGE, distil
from darklode.pipeline.towers.teacher_student import STATIC, TeacherPair
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import resolve_tenant
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.identity import identity
from darklode.schemas.paths import to_absolute
from darklode.schemas.run_inputs import TowersInputs
from darklode.schemas.settings import IngestSettings, Settings


def train_towers(  # noqa: PLR0913, PLR0917 (the parameters of the Prefect flow)
    runs: Sequence[str],
    encoder: str,
    out: str,
    settings: dict[str, Any] | None = None,
    teacher: str | None = None,
    queries: Sequence[str] = (),
    stage: Literal[1, 2] = 2,
    hold_out: str | None = None,
) -> str:
    """Train both towers, or distil a query tower and measure how much of its teacher it retains.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; the first one's settings are the base.
        encoder: encoder of the index, or initial model of both towers: name of an encoder in the settings, or a
            sentence-transformers model.
        out: folder or s3:// prefix of the student, or of both towers.
        settings: overrides of the first run's settings.
        teacher: folder of `darklode adapt` on this encoder; None: the encoder itself.
        queries: files of further queries, in the formats of `build`.
        stage: ScalingNote stage: 1 trains both towers and takes neither teacher nor queries; 2 distils.
        hold_out: source of queries that is only measured on: a run, `files` or `clusters`; None: see
            `choose_held_out`.

    Returns:
        The result in a sentence.

    Raises:
        DoesNotFit: the teacher was adapted from another encoder, or for another tenant.
        MissingPart: a model or a package is missing.
        SettingsError: a teacher, queries or a held-out source for stage 1.
    """
    if stage == 1:
        if teacher or queries or hold_out:
            raise SettingsError("stage 1 trains on triplets; --teacher, --queries and --hold-out are for stage 2")
        return stage_one.train_both_towers(runs, encoder, out, settings)
    records = read_runs(runs)
    resolved = records[0].with_overrides(settings or {})
    check_parts("full")
    base = open_base(records, encoder, resolved)
    assert isinstance(base.encoder, SentenceTransformersSettings)
    run = output_run(out, TowersInputs)
    with run.lock(), teacher_pair(teacher, base, base.encoder, resolved) as pair:
        inputs = TowersInputs(
            runs=list(runs), encoder=encoder, teacher=teacher, queries=list(queries), hold_out=hold_out
        )
        write_run(run, inputs, resolved)
        for step in steps(base, pair, list(queries), resolved, hold_out):
            run_step(run, step)
        return hand_over(run, base, pair, resolved, [*runs, *queries])


def steps(
    base: BaseEncoder, pair: TeacherPair, files: list[str], settings: Settings, hold_out: str | None = None
) -> list[Step]:
    """The steps in data order."""
    tower_settings, seed = settings.distill, settings.seed
    measuring = settings.evaluate.model_copy(update={"measures": MEASURES})
    return [
        *query_steps(base, files, settings, held_out=tower_settings.eval_queries, hold_out=hold_out),
        pairs_step(base, settings),
        Step(
            DISTIL_STAGE,
            call(
                distil, tower_settings.only("max_steps", "batch_size", "learning_rates", "report_to"), pair, seed=seed
            ),
        ),
        Step(TOWER_TEST_STAGE, call(test_student, base, pair)),
        Step(
            EVALUATION_STAGE,
            call(evaluate, measuring.only("measures", "n_resamples", "permutations"), systems=list(SYSTEMS), seed=seed),
        ),
    ]


def query_steps(
    base: BaseEncoder,
    files: list[str],
    settings: Settings,
    *,
    held_out: int,
    hold_out: str | None,
    with_passages: bool = True,
) -> list[Step]:
    """The steps that read and split unlabelled queries.

    Args:
        base: an encoder, with the runs.
        files: files of further queries.
        settings: the settings.
        held_out: maximum size of a held-out set.
        hold_out: see `choose_held_out`.
        with_passages: whether passages of the runs' texts are trained on, too.
    """
    sources = base.sources
    return [
        Step(
            INGEST_QUERIES,
            lambda: call(read_files, _reading(base, settings)),
            lambda: {f"the file {path}": source_fingerprint(path) for path in files},
            source=files,
        ),
        Step(
            QUERIES_STAGE,
            call(
                tower_queries,
                sources,
                tenant=settings.adapt.tenant,
                held_out=held_out,
                seed=settings.seed,
                hold_out=hold_out,
                with_passages=with_passages,
            ),
            lambda: {f"the run {source.run.store.url}": content(source) for source in sources},
            untracked=("sources",),
        ),
    ]


def _reading(base: BaseEncoder, settings: Settings) -> IngestSettings:
    """Settings to read files of queries; a query without a tenant gets the tenant of the index."""
    tenant_name = resolve_tenant(list(base.sources), settings.adapt.tenant)
    return settings.ingest.model_copy(update={"tenant": tenant_name}).but("documents")


@contextmanager
def teacher_pair(
    teacher: str | None, base: BaseEncoder, encoder: SentenceTransformersSettings, settings: Settings
) -> Iterator[TeacherPair]:
    """Teacher and student; a remote adapter is downloaded for the length of the block.

    Raises:
        DoesNotFit: the adapter was made from another encoder, or for another tenant.
        ArtifactError: there is no adapter.
    """
    tower_settings, model = settings.distill, None
    is_static = tower_settings.student_model == STATIC
    if tower_settings.student_model and not is_static:
        model = SentenceTransformersSettings(model=tower_settings.student_model, device=encoder.device)
        model.fetch()
    if teacher is None:
        yield TeacherPair(encoder, settings.cache, model, tower_settings.student_layers, is_static)
        return
    adapter = Adapter.open(teacher)
    _require_same_base(adapter, encoder, resolve_tenant(list(base.sources), settings.adapt.tenant))
    with adapter.on_disk() as folder:
        yield TeacherPair(
            _adapted_encoder(adapter, folder), settings.cache, model, tower_settings.student_layers, is_static
        )


def _require_same_base(adapter: Adapter, encoder: SentenceTransformersSettings, tenant: str) -> None:
    base_identity, recorded_identity = identity(encoder), adapter.facts["base"]
    for name in base_identity.keys() - {"settings"}:
        if base_identity[name] != recorded_identity[name]:
            raise DoesNotFit(f"{adapter.store.url} was adapted from another encoder: {name} {recorded_identity[name]}")
    if adapter.light:
        raise DoesNotFit(
            f"{adapter.store.url} is one tenant's head without an encoder; run `darklode adapt` for that tenant only"
        )
    if adapter.tenant != tenant:
        raise DoesNotFit(f"{adapter.store.url} is for tenant {adapter.tenant}, not for {tenant}")


def _adapted_encoder(adapter: Adapter, folder: Path) -> SentenceTransformersSettings:
    """The adapter's encoder: its folder truncates and normalizes; the query prompt is added here.

    Prompt and maximum length are those of the folder: a model swap has another encoder than its base.
    """
    config = json.loads((folder / "config_sentence_transformers.json").read_text())
    prompt = (config.get("prompts") or {}).get(config.get("default_prompt_name") or "", "")
    own = {"model": to_absolute(str(folder)), "revision": None, "truncate_dim": None, "max_seq_length": None}
    return adapter.base.model_copy(update=own | {"query_prompt": prompt})


def hand_over(run: Run, base: BaseEncoder, pair: TeacherPair, settings: Settings, sources: list[str]) -> str:
    """Write the student, its record, card and views; returns the result in a sentence."""
    from darklode.pipeline.towers.card import card
    from darklode.pipeline.towers.folder import save, sentence, write_record

    assert isinstance(base.encoder, SentenceTransformersSettings)
    save(run, pair)
    write_record(run, base, base.encoder)
    publish(run, card(run, settings, pair, sources))
    return f"{run.store.url}/query_encoder: {sentence(run.tables())}."


def _folder_steps(_run: Run, inputs: TowersInputs, settings: Settings) -> list[Step]:
    """The steps of either stage; nothing is opened."""
    base = unopened_base(inputs.encoder, settings)
    if inputs.stage == 1:
        return stage_one.steps(base, settings)
    assert isinstance(base.encoder, SentenceTransformersSettings)
    pair = TeacherPair(base.encoder, settings.cache, None, settings.distill.student_layers)
    return steps(base, pair, inputs.queries, settings, inputs.hold_out)


JOB = Job(
    "train-towers", train_towers, TowersInputs, _folder_steps, sections=("distilling", "encoder_swap", *RUN_SECTIONS)
)
