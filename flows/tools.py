"""From settings to the real parts behind the ports: retrievers and judges."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from flows.config import nearest
from pipeline.artifacts import Tables, key_of
from pipeline.corpora import TenantChunks
from pipeline.encoders.registry import fetch
from pipeline.errors import SettingsError
from pipeline.judges.cross_encoder import CrossEncoderJudge
from pipeline.judges.embedded import EmbeddedJudge
from pipeline.judges.estimate import Estimate, estimate
from pipeline.judges.ledger import Ledger
from pipeline.judges.llm import LlmJudge
from pipeline.judges.panel import Panel
from pipeline.judges.port import Judge
from pipeline.judges.prompt import load_prompt
from pipeline.judges.remembering import Remembered
from pipeline.judges.threshold import Thresholded
from pipeline.judges.vote import Vote
from pipeline.relevance.opened import Ranker
from pipeline.retrievers.corpus import Corpus
from pipeline.retrievers.embedded import EMBEDDED
from pipeline.retrievers.encoded import Encoded
from pipeline.retrievers.port import Retriever
from pipeline.search import Factory
from pipeline.terms import TermSpace
from schemas.settings import Bm25Settings, CacheSettings, JudgeSettings, MemberSettings, Settings

_LOG = logging.getLogger("darklode.judge")

_DECISIVE = {
    "embedded": set[str](),
    "cross_encoder": {"model", "revision", "max_tokens"},
    "llm": {"model", "revision", "mode", "rationale", "parameters", "max_chunk_tokens", "attempts"},
}
"""Settings besides kind and threshold that decide what a judge says."""


@dataclass(frozen=True)
class Embedded:
    """Builds an embedded retriever: by its name, so that it can travel to another machine."""

    name: str

    def __call__(self, corpus: Corpus) -> Retriever:
        """Fit it on the corpus."""
        return EMBEDDED[self.name](corpus)

    @property
    def shares(self) -> str:
        """A feedback retriever fits what the one that it is named after fits."""
        return self.name.removesuffix("_feedback")


@dataclass(frozen=True)
class Lexical:
    """Builds BM25 by its settings."""

    settings: Bm25Settings

    def __call__(self, corpus: Corpus) -> Retriever:
        """Index the corpus, or take the index kept from an earlier search."""
        return corpus.bm25(self.settings)

    @property
    def identity(self) -> dict[str, Any]:
        """All that can change its lists besides texts and depth."""
        return self.settings.model_dump(mode="json")


def retrievers(settings: Settings) -> Mapping[str, Factory]:
    """The retrievers that `pool.retrievers` names, in its order: embedded ones, or encoders of the settings.

    Raises:
        SettingsError: no name, an unknown one, or one twice.
    """
    return _named(settings.pool.retrievers, "pool.retrievers", settings)


def ranker(settings: Settings, through: date | None) -> Ranker:
    """Who ranks documents for the log's queries: the judge, and the retrievers that `relevance.retrievers` names.

    Args:
        settings: relevance, judge and what they need.
        through: the last settled day of the log; the ranker sees the documents of that time until the next one.

    Raises:
        SettingsError: no name, an unknown one, or one twice.
    """
    found = _named(settings.relevance.retrievers, "relevance.retrievers", settings)
    judge, chunks = judge_identity(settings.judge), settings.chunk.model_dump(mode="json")
    version = key_of(judge, identities(found), chunks, through and through.isoformat())
    return Ranker(judge_for(settings), found, version)


def _named(names: Sequence[str], where: str, settings: Settings) -> Mapping[str, Factory]:
    if not names or len(set(names)) < len(names):
        raise SettingsError(f"{where} must name at least one retriever, and none twice")
    return {name: _retriever(name, where, settings) for name in names}


def _retriever(name: str, where: str, settings: Settings) -> Factory:
    if name in settings.encoders:
        return Encoded(name, settings.encoders[name], settings.vectors, settings.cache)
    if name == "bm25":
        return Lexical(settings.bm25)
    if name in EMBEDDED:
        return Embedded(name)
    known = [*EMBEDDED, *settings.encoders]
    raise SettingsError(f"{where}: there is no retriever {name}; {nearest(name, known)}")


def fetch_models(settings: Settings) -> None:
    """Download the models of the retrievers in use that are not on this machine.

    Raises:
        MissingPart: one cannot be had.
    """
    for name in settings.pool.retrievers:
        if name in settings.encoders:
            fetch(settings.encoders[name])


def identities(factories: Mapping[str, Factory]) -> dict[str, Any]:
    """What names each retriever in fingerprints; the embedded ones are known by their names."""
    return {name: getattr(factory, "identity", name) for name, factory in factories.items()}


def judge_for(settings: Settings, fitted: Mapping[str, float] | None = None) -> Callable[[TenantChunks], Judge]:
    """Builds the judge of one tenant's chunks: one that is fitted on them, or one for all tenants, with its ledger.

    Args:
        settings: judge and cache.
        fitted: each tenant's threshold where `judge.threshold` is fitted; None leaves it at 0.5.
    """
    given, thresholds = settings.judge, fitted or {}
    first, *others = [_member(member, settings.cache) for member in (given, *given.panel)]
    weights = given.weights or (1.0,) * (1 + len(others))

    def build(chunks: TenantChunks) -> Judge:
        threshold = thresholds.get(chunks.tenant, given.cut)
        if not others:
            return first(chunks, threshold)
        members = [
            first(chunks, given.cut),
            *(one(chunks, of.cut) for one, of in zip(others, given.panel, strict=True)),
        ]
        return Panel(members, Vote(given.vote, weights, threshold))

    return build


def _member(given: MemberSettings, where: CacheSettings) -> Callable[[TenantChunks, float], Judge]:
    """Builds one judge from a tenant's chunks and its threshold."""
    if given.kind == "embedded":
        return lambda chunks, threshold: EmbeddedJudge(
            TermSpace(chunks.batches()), given.model_copy(update={"threshold": threshold})
        )

    @cache
    def remembered() -> Judge:
        asker = CrossEncoderJudge(given) if given.kind == "cross_encoder" else LlmJudge(given, _LOG.warning)
        return Remembered(asker, Ledger(where.root), given.attempts)

    @cache
    def labelled(threshold: float) -> Judge:
        # A cross-encoder's own labels have the threshold of the settings.
        stands = given.kind == "cross_encoder" and threshold == given.cut
        return remembered() if stands else Thresholded(remembered(), threshold)

    return lambda _chunks, threshold: labelled(threshold)


def judge_estimate(settings: Settings, tables: Tables) -> Estimate:
    """What judging a run's pool will take.

    Raises:
        SettingsError: the judge is no language model: the others cost nothing but time.
    """
    given = settings.judge
    if given.kind != "llm":
        raise SettingsError(f"--estimate is for judge.kind llm, not {given.kind}")
    asker, ledger = LlmJudge(given, _LOG.warning), Ledger(settings.cache.root)
    return estimate(tables, asker, ledger, given, seed=settings.seed)


def judge_identity(settings: JudgeSettings) -> dict[str, Any]:
    """All settings that can change a verdict: not where the servers are, nor what they may take and cost."""
    given = _identity(settings)
    if settings.depth == "adaptive":
        given |= settings.model_dump(mode="json", include={"depth", "recall", "random_share"})
    if settings.panel:
        given |= {"panel": [_identity(member) for member in settings.panel]}
        given |= {"vote": settings.vote, "weights": settings.weights}
    return given


def _identity(settings: MemberSettings) -> dict[str, Any]:
    given = settings.model_dump(mode="json", include={"kind", "threshold", *_DECISIVE[settings.kind]})
    return given | ({"prompt": load_prompt(settings.prompt).digest} if settings.kind == "llm" else {})
