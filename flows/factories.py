"""Retrievers, encoders, judges and rankers from settings."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from darklode.flows.runs import folder_kind, read_inputs
from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.factory import Judges, configure_judge, members
from darklode.pipeline.judge.kinds import JudgeKind
from darklode.pipeline.mine.relevance.ranker import Ranker
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.retrievers import composite
from darklode.pipeline.retrieve.retrievers.composite import CompositeBuilder
from darklode.pipeline.retrieve.retrievers.kinds import CompositeKind, LiveKind, RetrieverKind
from darklode.pipeline.retrieve.retrievers.live import LiveBuilder
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.towers.dual import TOWERS_FOLDER
from darklode.schemas.judging import JUDGES, NO_JUDGE, JudgeSettings
from darklode.schemas.kinds import KindSection, OfKind, UnknownKind, nearest
from darklode.schemas.pooling import RETRIEVERS
from darklode.schemas.run_inputs import TowersInputs
from darklode.schemas.settings import Settings
from darklode.schemas.shared import LocalModelSection

Builder = RetrieverKind | NeuralBuilder | LiveBuilder | CompositeBuilder


def retrievers(settings: Settings) -> Mapping[str, Builder]:
    """The retrievers in `pool.retrievers`, in order.

    Raises:
        SettingsError: no name, an unknown one, or a duplicate.
    """
    return _select_systems(settings.pool.retrievers, "pool.retrievers", settings)


def ranker(settings: Settings, through: date | None) -> Ranker:
    """The ranker of documents for a log's queries: a judge, and the retrievers in `relevance.retrievers`.

    Args:
        settings: the settings to use.
        through: the last settled day of the log; the ranker sees the documents of that day until it is fitted again.

    Raises:
        SettingsError: no name, an unknown one, or a duplicate.
    """
    names = ranking_retrievers(settings)
    judges, chunks = _ranking_settings(settings), settings.chunk.model_dump(mode="json")
    version = key_of(judges.identity, identities(names), chunks, through.isoformat() if through else None)
    return Ranker(judges, names, version)


def ranking_retrievers(settings: Settings) -> Mapping[str, Builder]:
    """The retrievers in `relevance.retrievers`, whose results are ranked.

    Raises:
        SettingsError: as for `ranker`.
    """
    return _select_systems(settings.relevance.retrievers, "relevance.retrievers", settings)


def _ranking_settings(settings: Settings) -> Judges:
    """The judges whose probability ranks: those of the section `judge`, or the cross-encoder of `relevance`."""
    if settings.relevance.ranker != "cross_encoder":
        return Judges.from_settings(settings)
    kind: Any = OfKind(JUDGES, JudgeSettings).section("cross_encoder")
    fields = settings.relevance.model_dump(include={"model", *LocalModelSection.model_fields})
    return Judges.from_settings(
        settings.model_copy(update={"judge": kind.model_validate({"kind": "cross_encoder"} | fields)})
    )


def systems(settings: Settings, *, mined: bool) -> Mapping[str, Builder]:
    """The systems to evaluate, as `named_systems`; models are downloaded.

    Raises:
        SettingsError: an unknown name, or a duplicate.
        MissingPart: a model cannot be downloaded.
    """
    selected = named_systems(settings, mined=mined)
    fetch_retrievers(selected)
    return selected


def named_systems(settings: Settings, *, mined: bool) -> Mapping[str, Builder]:
    """The retrievers in `evaluate.systems`; by default those of the run, or none if there are `evaluate.run_files`.

    Raises:
        SettingsError: an unknown name, or a duplicate.
    """
    default = settings.relevance.retrievers if mined else settings.pool.retrievers
    names = settings.evaluate.systems or (() if settings.evaluate.run_files else default)
    return _select_systems(names, "evaluate.systems", settings) if names else {}


def _select_systems(names: Sequence[str], where: str, settings: Settings) -> Mapping[str, Builder]:
    if not names or len(set(names)) < len(names):
        raise SettingsError(f"{where} must name at least one retriever, without duplicates")
    return {name: retriever(name, where, settings) for name in names}


def retriever(name: str, where: str, settings: Settings) -> Builder:
    """A retriever by name: a built-in kind, one of the section `retrievers`, or an encoder of the settings.

    Args:
        name: name of the retriever.
        where: setting or option with the name, for the error.
        settings: settings with its configuration.

    Raises:
        SettingsError: an unknown name, or a retriever that is made of itself.
    """
    return _resolve(name, where, settings, ())


def _resolve(name: str, where: str, settings: Settings, path: tuple[str, ...]) -> Builder:
    """See `retriever`; `path` has the names of the retrievers that this one is a part of, outermost first."""
    if name in path:
        raise SettingsError(f"{where}: a retriever cannot be made of itself ({' → '.join([*path, name])})")
    if name in settings.encoders:
        return NeuralBuilder(
            name, as_kind(settings.encoders[name], EncoderKind), settings.vector_search, settings.cache
        )
    kind = _retriever_kind(name, where, settings)
    if isinstance(kind, LiveKind):
        return LiveBuilder(name, kind, settings.cache)
    if isinstance(kind, CompositeKind):
        part_of = f"retrievers.{name}.of"
        members = tuple((source, _resolve(source, part_of, settings, (*path, name))) for source in kind.sources)
        return CompositeBuilder(name, kind, members, settings.cache, settings.vector_search)
    return kind


def _retriever_kind(name: str, where: str, settings: Settings) -> RetrieverKind:
    if name in settings.retrievers:
        return as_kind(settings.retrievers[name], RetrieverKind)
    try:
        return as_kind(RETRIEVERS.load(name).from_settings(settings), RetrieverKind)
    except UnknownKind as error:
        names = [*RETRIEVERS.names(), *settings.retrievers, *settings.encoders]
        hint = nearest(name, names) if name not in RETRIEVERS.names() else str(error)
        raise SettingsError(f"{where}: unknown retriever {name}; {hint}") from error


def with_members(builders: Mapping[str, Builder]) -> dict[str, Builder]:
    """The builders, and those of the retrievers that they are made of, by name."""
    return dict(composite.with_members(builders.items()))


def retriever_settings(builders: Mapping[str, Builder]) -> dict[str, KindSection]:
    """Settings of the builders, and of the retrievers that they are made of, by name."""
    return {name: _settings_of(builder) for name, builder in with_members(builders).items()}


def _settings_of(builder: Builder) -> KindSection:
    if isinstance(builder, NeuralBuilder):
        return builder.encoder
    if isinstance(builder, CompositeBuilder):
        return builder.kind
    return builder.engine if isinstance(builder, LiveBuilder) else builder


def fetch_retrievers(builders: Mapping[str, Builder]) -> None:
    """Download models of retrievers that are not on this machine.

    Raises:
        MissingPart: one cannot be downloaded.
    """
    for builder in with_members(builders).values():
        if isinstance(builder, NeuralBuilder):
            builder.encoder.fetch()
        elif isinstance(builder, CompositeBuilder):
            builder.kind.fetch()


def encoder(name: str, settings: Settings) -> EncoderKind:
    """An encoder by name: of the settings, a folder of both towers, or a sentence-transformers model.

    Args:
        name: a name in the settings, a folder of `train-towers --stage 1`, or a model (name, folder or `package:NAME`).
        settings: settings with encoders.

    Raises:
        SettingsError: the towers are in a bucket.
    """
    section = settings.encoders.get(name)
    if section:
        return as_kind(section, EncoderKind)
    return both_towers(name) or SentenceTransformersSettings(model=name)


def both_towers(name: str) -> SentenceTransformersSettings | None:
    """The towers in a folder of `train-towers --stage 1`, with their prompts; None for any other folder.

    Raises:
        SettingsError: the folder is in a bucket.
    """
    run = Run(name)
    inputs = read_inputs(run) if folder_kind(run) == "towers" else None
    if not isinstance(inputs, TowersInputs) or inputs.stage != 1:
        return None
    if run.store.local is None:
        raise SettingsError(
            f"models are loaded from local folders: copy {run.store.path(TOWERS_FOLDER)} and name the copy"
        )
    config = json.loads(run.store.read(f"{TOWERS_FOLDER}/config_sentence_transformers.json") or b"{}")
    prompts = config.get("prompts", {})
    return SentenceTransformersSettings(
        model=str(run.store.local / TOWERS_FOLDER),
        query_prompt=prompts.get("query", ""),
        document_prompt=prompts.get("document", ""),
    )


def fetch_models(settings: Settings) -> None:
    """Download models of retrievers and judges that are not on this machine.

    Raises:
        MissingPart: one cannot be downloaded.
    """
    names = settings.pool.retrievers
    fetch_retrievers({name: retriever(name, "pool.retrievers", settings) for name in names})
    for judge in members(configure_judge(settings)):
        judge.fetch()


def identities(factories: Mapping[str, Builder]) -> dict[str, Any]:
    """Identities of retrievers, for fingerprints."""
    return {name: factory.identity for name, factory in factories.items()}


def fetch_ranker(settings: Settings) -> None:
    """Download models of the ranker and its retrievers before mining starts, since they are needed hours later.

    Raises:
        MissingPart: one cannot be downloaded.
    """
    if settings.relevance.ranker != "none":
        fetch_retrievers(ranking_retrievers(settings))
    for member in ranking_judges(settings):
        try:
            member.fetch()
        except MissingPart as error:
            hint = "use another model or folder with --set relevance.model=NAME, or --set relevance.ranker=none"
            raise MissingPart(f"{error}; {hint}") from error


def judges_logs(settings: Settings) -> bool:
    """Whether the judge is asked about a log by default: the embedded one is too weak for that."""
    return settings.judge.kind not in {"embedded", NO_JUDGE}


def verifies(settings: Settings) -> bool:
    """Whether the judge verifies pairs mined from a log."""
    share = settings.mining.verify_share
    return judges_logs(settings) if share is None else share > 0


def ranking_judges(settings: Settings) -> list[JudgeKind]:
    """The judges that rank for a log's queries; empty if `relevance.ranker` is none."""
    return members(_ranking_settings(settings).settings) if settings.relevance.ranker != "none" else []


def judge_estimates(settings: Settings, tables: Tables) -> dict[str, pa.Table]:
    """Estimated time and cost of judging a run's pool, for each judge with a price per call.

    Raises:
        SettingsError: no judge has one.
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
            f"--estimate needs a judge with a price per call, such as kind llm; judge.kind is {judge_settings.kind}"
        )
    return estimates
