"""Build the judge of a tenant's pairs, alone or with a panel, from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, cast

from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.kinds import JudgeKind
from darklode.pipeline.judge.port import Judge
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.settings import CacheSettings, Settings


@dataclass(frozen=True)
class Judges:
    """Builds the judges of tenants.

    Attributes:
        settings: settings of the judge.
        cache: location of the ledger.
        thresholds: fitted thresholds by tenant; others use the threshold of the kind.
    """

    settings: JudgeSettings
    cache: CacheSettings
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """From the section `judge`, which may refer to other sections."""
        return cls(configure_judge(settings), settings.cache)

    @property
    def can_learn(self) -> bool:
        """Whether the judge is trained on human labels; a panel is not."""
        return as_kind(self.settings, JudgeKind).LEARNS and not self.settings.panel

    @property
    def tables_read(self) -> tuple[str, ...]:
        """Tables that the judge reads besides queries, chunks and pool."""
        return tuple(table for member in members(self.settings) for table in member.READS)

    @cached_property
    def _build(self) -> Callable[[TenantChunks], Judge]:
        return judge_for(self.settings, self.cache, self.thresholds)

    def __call__(self, chunks: TenantChunks) -> Judge:
        """The judge of a tenant's chunks."""
        return self._build(chunks)

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that can change a verdict."""
        return judge_identity(self.settings)


def configure_judge(settings: Settings) -> JudgeSettings:
    """The section `judge`, with references to other sections resolved."""
    panel = tuple(as_kind(member, JudgeKind).with_settings(settings) for member in settings.judge.panel)
    judge: Any = as_kind(settings.judge, JudgeKind).with_settings(settings)
    return cast(JudgeSettings, judge.model_copy(update={"panel": panel}))


def members(settings: JudgeSettings) -> list[JudgeKind]:
    """The judge and its panel."""
    return [as_kind(member, JudgeKind) for member in (settings, *settings.panel)]


def answering_kinds(settings: JudgeSettings) -> list[JudgeKind]:
    """The judge and its panel; instead of a cascade its two judges."""
    return [kind for member in members(settings) for kind in member.asked]


def judge_for(
    settings: JudgeSettings, cache: CacheSettings, thresholds: Mapping[str, float]
) -> Callable[[TenantChunks], Judge]:
    """Return a function that builds the judge of a tenant's chunks: fitted on them, or shared by all tenants.

    Args:
        settings: settings of the judge and its panel.
        cache: location of the ledger.
        thresholds: fitted thresholds by tenant.
    """
    first, *other_builders = [member.builder(cache) for member in members(settings)]
    weights = settings.panel_weights or (1.0,) * (1 + len(other_builders))

    def build(chunks: TenantChunks) -> Judge:
        threshold = thresholds.get(chunks.tenant, settings.cut)
        if not other_builders:
            return first(chunks, threshold)
        from darklode.pipeline.judge.panel import Panel, Vote  # slow to import

        panel_members = [
            first(chunks, settings.cut),
            *(builder(chunks, member.cut) for builder, member in zip(other_builders, settings.panel, strict=True)),
        ]
        return Panel(panel_members, Vote(settings.vote, weights, threshold, tuple(settings.verdict_grades())))

    return build


def judge_identity(settings: JudgeSettings) -> dict[str, Any]:
    """All settings that can change a verdict: not the servers' addresses, limits or prices."""
    kind_identity = as_kind(settings, JudgeKind).identity
    if settings.strategy == "adaptive":
        kind_identity |= settings.model_dump(mode="json", include={"strategy", "target_recall", "random_share"})
    if settings.panel:
        kind_identity |= {"panel": [as_kind(member, JudgeKind).identity for member in settings.panel]}
        kind_identity |= {"vote": settings.vote, "weights": settings.panel_weights}
    return kind_identity
