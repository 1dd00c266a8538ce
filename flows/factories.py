"""From settings to the real parts behind the ports: retrievers and judges."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from darklode.flows.runs import STAGE, read_notes
from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.factory import Judges, configure_judge, members
from darklode.pipeline.judge.kinds import JudgeKind
from darklode.pipeline.mine.relevance.ranker import Ranker
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.retrievers.kinds import RetrieverKind
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.towers.dual import FOLDER as BOTH
from darklode.schemas.judging import JUDGES, JudgeSettings
from darklode.schemas.kinds import OfKind, UnknownKind, nearest
from darklode.schemas.pooling import RETRIEVERS
from darklode.schemas.settings import Settings
from darklode.schemas.shared import LocalModelSection

Builder = RetrieverKind | NeuralBuilder


def retrievers(settings: Settings) -> Mapping[str, Builder]:
    """The retrievers that `pool.retrievers` names, in its order: embedded ones, or encoders of the settings.

    Raises:
        SettingsError: no name, an unknown one, or one twice.
    """
    return _select_systems(settings.pool.retrievers, "pool.retrievers", settings)


def ranker(settings: Settings, through: date | None) -> Ranker:
    """Who ranks documents for the log's queries: a judge, and the retrievers that `relevance.retrievers` names.

    Args:
        settings: relevance, judge and what they need.
        through: the last settled day of the log; the ranker sees the documents of that time until the next one.

    Raises:
        SettingsError: no name, an unknown one, or one twice.
    """
    names = ranking_retrievers(settings)
    judges, chunks = _ranking_settings(settings), settings.chunk.model_dump(mode="json")
    version = key_of(judges.identity, identities(names), chunks, through.isoformat() if through else None)
    return Ranker(judges, names, version)


def ranking_retrievers(settings: Settings) -> Mapping[str, Builder]:
    """The retrievers whose lists are ranked.

    Raises:
        SettingsError: as for `ranker`.
    """
    return _select_systems(settings.relevance.retrievers, "relevance.retrievers", settings)


def _ranking_settings(settings: Settings) -> Judges:
    """The judges whose probability ranks: those of the section `judge`, or a cross-encoder of its own."""
    if settings.relevance.ranker != "cross_encoder":
        return Judges.from_settings(settings)
    kind: Any = OfKind(JUDGES, JudgeSettings).section("cross_encoder")
    fields = settings.relevance.model_dump(include={"model", *LocalModelSection.model_fields})
    return Judges.from_settings(
        settings.model_copy(update={"judge": kind.model_validate({"kind": "cross_encoder"} | fields)})
    )


def systems(settings: Settings, *, mined: bool) -> Mapping[str, Builder]:
    """See `named_systems`; models are fetched.

    Raises:
        SettingsError: an unknown name, or one twice.
        MissingPart: a model cannot be had.
    """
    selected = named_systems(settings, mined=mined)
    for builder in selected.values():
        if isinstance(builder, NeuralBuilder):
            builder.encoder.fetch()
    return selected


def named_systems(settings: Settings, *, mined: bool) -> Mapping[str, Builder]:
    """The retrievers that `evaluate.systems` names, or else those that made the run.

    Raises:
        SettingsError: an unknown name, or one twice.
    """
    usual = settings.relevance.retrievers if mined else settings.pool.retrievers
    names = settings.evaluate.systems or (() if settings.evaluate.run_files else usual)
    return _select_systems(names, "evaluate.systems", settings) if names else {}


def _select_systems(names: Sequence[str], where: str, settings: Settings) -> Mapping[str, Builder]:
    if not names or len(set(names)) < len(names):
        raise SettingsError(f"{where} must name at least one retriever, and none twice")
    return {name: retriever(name, where, settings) for name in names}


def retriever(name: str, where: str, settings: Settings) -> Builder:
    """One by its name: a kind, one of the section `retrievers`, or an encoder of the settings.

    Args:
        name: as it was given.
        where: it was, for the error.
        settings: what it is configured by.

    Raises:
        SettingsError: an unknown name.
    """
    if name in settings.encoders:
        return NeuralBuilder(
            name, as_kind(settings.encoders[name], EncoderKind), settings.vector_search, settings.cache
        )
    if name in settings.retrievers:
        return as_kind(settings.retrievers[name], RetrieverKind)
    try:
        return as_kind(RETRIEVERS.load(name).from_settings(settings), RetrieverKind)
    except UnknownKind as error:
        names = [*RETRIEVERS.names(), *settings.retrievers, *settings.encoders]
        hint = nearest(name, names) if name not in RETRIEVERS.names() else str(error)
        raise SettingsError(f"{where}: there is no retriever {name}; {hint}") from error


def encoder(name: str, settings: Settings) -> EncoderKind:
    """An encoder of the settings by its name, a folder of both towers, or a sentence-transformers model.

    Args:
        name: of the settings, a folder of `train-towers --stage 1`, or a model: its name, its folder, `package:NAME`.
        settings: with encoders.

    Raises:
        SettingsError: both towers lie in a bucket.
    """
    settings_found = settings.encoders.get(name)
    return (
        as_kind(settings_found, EncoderKind)
        if settings_found
        else both_towers(name) or SentenceTransformersSettings(model=name)
    )


def both_towers(name: str) -> SentenceTransformersSettings | None:
    """The towers in a folder of `train-towers --stage 1`, with their own prompts; None where it is no such folder.

    Raises:
        SettingsError: the folder is in a bucket.
    """
    run = Run(name)
    if read_notes(run).get(STAGE) != 1:
        return None
    if run.store.local is None:
        raise SettingsError(
            f"copy {run.store.path(BOTH)} to this machine, and name the copy: models are read from here"
        )
    prompts = json.loads(run.store.read(f"{BOTH}/config_sentence_transformers.json") or b"{}").get("prompts", {})
    return SentenceTransformersSettings(
        model=str(run.store.local / BOTH),
        query_prompt=prompts.get("query", ""),
        document_prompt=prompts.get("document", ""),
    )


def fetch_models(settings: Settings) -> None:
    """Download the models of the retrievers and judges in use that are not on this machine.

    Raises:
        MissingPart: one cannot be had.
    """
    for name in settings.pool.retrievers:
        if name in settings.encoders:
            as_kind(settings.encoders[name], EncoderKind).fetch()
    for judge in members(configure_judge(settings)):
        judge.fetch()


def identities(factories: Mapping[str, Builder]) -> dict[str, Any]:
    """What names each retriever in fingerprints."""
    return {name: factory.identity for name, factory in factories.items()}


def fetch_ranker(settings: Settings) -> None:
    """Download the models of who ranks for a log's queries, before hours of mining end at their want.

    Raises:
        MissingPart: one cannot be had.
    """
    for member in ranking_judges(settings):
        try:
            member.fetch()
        except MissingPart as error:
            hint = (
                "--set relevance.model=NAME takes another model or a folder, --set relevance.ranker=none does without"
            )
            raise MissingPart(f"{error}; {hint}") from error


def verifies(settings: Settings) -> bool:
    """Whether the judge looks at a log's pairs: where nobody says so, any but the embedded one does."""
    share = settings.mining.verify_share
    return settings.judge.kind != "embedded" if share is None else share > 0


def ranking_judges(settings: Settings) -> list[JudgeKind]:
    """Who ranks for a log's queries; nobody where `relevance.ranker` is none."""
    return members(_ranking_settings(settings).settings) if settings.relevance.ranker != "none" else []


def judge_estimates(settings: Settings, tables: Tables) -> dict[str, pa.Table]:
    """What judging a run's pool will take, by judge: of a panel, all that are paid by the call.

    Raises:
        SettingsError: the judge costs nothing but time.
    """
    judge_settings, estimates = settings.judge, dict[str, pa.Table]()
    for number, member in enumerate((judge_settings, *judge_settings.panel), 1):
        estimate = as_kind(member, JudgeKind).estimate(tables, settings.cache, settings.seed)
        if estimate:
            name = f"judge {number} of the panel, {estimate.judge}" if judge_settings.panel else estimate.judge
            adaptive = judge_settings.strategy == "adaptive"
            estimates[name] = (
                estimate.table_at_adaptive_depth(judge_settings.target_recall, judge_settings.random_share)
                if adaptive
                else estimate.table()
            )
    if not estimates:
        raise SettingsError(
            f"--estimate is for a judge that is paid by the call, as kind llm is, not for {judge_settings.kind}"
        )
    return estimates
