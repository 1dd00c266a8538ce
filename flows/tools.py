"""From settings to the real parts behind the ports: retrievers and judges."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from darklode.flows.runs import STAGE, noted
from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.build import Judges, configured, members
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

Builder = RetrieverKind | NeuralBuilder


def retrievers(settings: Settings) -> Mapping[str, Builder]:
    """The retrievers that `pool.retrievers` names, in its order: embedded ones, or encoders of the settings.

    Raises:
        SettingsError: no name, an unknown one, or one twice.
    """
    return _named(settings.pool.retrievers, "pool.retrievers", settings)


def ranker(settings: Settings, through: date | None) -> Ranker:
    """Who ranks documents for the log's queries: a judge, and the retrievers that `relevance.retrievers` names.

    Args:
        settings: relevance, judge and what they need.
        through: the last settled day of the log; the ranker sees the documents of that time until the next one.

    Raises:
        SettingsError: no name, an unknown one, or one twice.
    """
    found = ranking_retrievers(settings)
    judges, chunks = _ranking(settings), settings.chunk.model_dump(mode="json")
    version = key_of(judges.identity, identities(found), chunks, through.isoformat() if through else None)
    return Ranker(judges, found, version)


def ranking_retrievers(settings: Settings) -> Mapping[str, Builder]:
    """The retrievers whose lists are ranked.

    Raises:
        SettingsError: as for `ranker`.
    """
    return _named(settings.relevance.retrievers, "relevance.retrievers", settings)


def _ranking(settings: Settings) -> Judges:
    """The judges whose probability ranks: those of the section `judge`, or a cross-encoder of its own."""
    if settings.relevance.ranker != "cross_encoder":
        return Judges.of(settings)
    kind: Any = OfKind(JUDGES, JudgeSettings).section("cross_encoder")
    given = settings.relevance.model_dump(include={"model", "revision", "max_tokens", "device", "batch_size"})
    return Judges.of(settings.model_copy(update={"judge": kind.model_validate({"kind": "cross_encoder"} | given)}))


def systems(settings: Settings, *, mined: bool) -> Mapping[str, Builder]:
    """See `named_systems`; models are fetched.

    Raises:
        SettingsError: an unknown name, or one twice.
        MissingPart: a model cannot be had.
    """
    found = named_systems(settings, mined=mined)
    for one in found.values():
        if isinstance(one, NeuralBuilder):
            one.encoder.fetch()
    return found


def named_systems(settings: Settings, *, mined: bool) -> Mapping[str, Builder]:
    """The retrievers that `evaluate.systems` names, or else those that made the run.

    Raises:
        SettingsError: an unknown name, or one twice.
    """
    usual = settings.relevance.retrievers if mined else settings.pool.retrievers
    names = settings.evaluate.systems or (() if settings.evaluate.run_files else usual)
    return _named(names, "evaluate.systems", settings) if names else {}


def _named(names: Sequence[str], where: str, settings: Settings) -> Mapping[str, Builder]:
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
        return NeuralBuilder(name, as_kind(settings.encoders[name], EncoderKind), settings.vectors, settings.cache)
    if name in settings.retrievers:
        return as_kind(settings.retrievers[name], RetrieverKind)
    try:
        return as_kind(RETRIEVERS.load(name).configured(settings), RetrieverKind)
    except UnknownKind as error:
        known = [*RETRIEVERS.names(), *settings.retrievers, *settings.encoders]
        said = nearest(name, known) if name not in RETRIEVERS.names() else str(error)
        raise SettingsError(f"{where}: there is no retriever {name}; {said}") from error


def encoder(name: str, settings: Settings) -> EncoderKind:
    """An encoder of the settings by its name, a folder of both towers, or a sentence-transformers model.

    Args:
        name: of the settings, a folder of `train-towers --stage 1`, or a model: its name, its folder, `package:NAME`.
        settings: with encoders.

    Raises:
        SettingsError: both towers lie in a bucket.
    """
    found = settings.encoders.get(name)
    return as_kind(found, EncoderKind) if found else both_towers(name) or SentenceTransformersSettings(model=name)


def both_towers(name: str) -> SentenceTransformersSettings | None:
    """The towers in a folder of `train-towers --stage 1`, with their own prompts; None where it is no such folder.

    Raises:
        SettingsError: the folder is in a bucket.
    """
    run = Run(name)
    if noted(run).get(STAGE) != 1:
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
    for judge in members(configured(settings)):
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
    return members(_ranking(settings).settings) if settings.relevance.ranker != "none" else []


def judge_estimates(settings: Settings, tables: Tables) -> dict[str, pa.Table]:
    """What judging a run's pool will take, by judge: of a panel, all that are paid by the call.

    Raises:
        SettingsError: the judge costs nothing but time.
    """
    given, found = settings.judge, dict[str, pa.Table]()
    for number, member in enumerate((given, *given.panel), 1):
        told = as_kind(member, JudgeKind).estimate(tables, settings.cache, settings.seed)
        if told:
            name = f"judge {number} of the panel, {told.judge}" if given.panel else told.judge
            adaptive = given.depth == "adaptive"
            found[name] = told.table_at_adaptive_depth(given.recall, given.random_share) if adaptive else told.table()
    if not found:
        raise SettingsError(f"--estimate is for a judge that is paid by the call, as kind llm is, not for {given.kind}")
    return found
