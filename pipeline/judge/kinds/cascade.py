"""Cascade judge: a distilled judge answers what it is sure of, another judge the rest (`pipeline/judge/cascade.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.cascade import Cascade, CascadeBand, distilled_record
from darklode.pipeline.judge.kinds import Builder, JudgeKind
from darklode.pipeline.judge.kinds.cross_encoder import CrossEncoderSettings
from darklode.schemas.judging import JUDGES, NO_JUDGE, MemberSettings
from darklode.schemas.kinds import OfKind
from darklode.schemas.paths import FolderOrName
from darklode.schemas.settings import CacheSettings, Settings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.base.chunk_texts import TenantChunks
    from darklode.pipeline.judge.estimate import Estimate
    from darklode.pipeline.judge.port import Judge


class CascadeSettings(JudgeKind):
    """A distilled judge that answers what it is sure of, and a large judge for the rest."""

    kind: Literal["cascade"] = "cascade"
    small: FolderOrName[str] = Field("", description="Output folder of `judge distil`.")
    large: Annotated[MemberSettings | None, OfKind(JUDGES, MemberSettings)] = Field(
        None, description="Judge of the pairs that the small one is not sure of: a section with kind and its settings."
    )
    agreement: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Minimum kappa of the cascade with the large judge on the test queries of `judge distil`; chooses "
        "the probabilities from which on the small judge answers. 1: the large judge answers all pairs.",
    )

    @model_validator(mode="after")
    def _requires_both_judges(self) -> Self:
        if not self.small or self.large is None:
            raise ValueError("kind cascade needs judge.small, a folder of `judge distil`, and judge.large, a judge")
        if self.large.kind in {"cascade", NO_JUDGE} or as_kind(self.large, JudgeKind).LEARNS:
            raise ValueError(f"judge.large of a cascade cannot be of kind {self.large.kind}")
        if self.large.threshold == "fitted":
            raise ValueError("judge.large of a cascade needs a number as threshold; only the judge itself is fitted")
        return self

    @property
    def band(self) -> CascadeBand:
        """The probabilities that are left to the large judge."""
        return CascadeBand.from_folder(self.small, self.agreement)

    @property
    def small_judge(self) -> CrossEncoderSettings:
        """Settings of the small judge."""
        return CrossEncoderSettings(model=self.small)

    @property
    def large_judge(self) -> JudgeKind:
        """Settings of the large judge."""
        assert self.large is not None
        return as_kind(self.large, JudgeKind)

    @property
    def asked(self) -> tuple[JudgeKind, ...]:
        """The small and the large judge."""
        return self.small_judge, self.large_judge

    def with_reversed_examples(self) -> Self | None:
        """A cascade whose large judge has its examples in reverse order."""
        reversed_judge = self.large_judge.with_reversed_examples()
        return None if reversed_judge is None else self.model_copy(update={"large": reversed_judge})

    def with_settings(self, settings: Settings) -> Self:
        """A copy whose large judge has its references to other sections resolved."""
        return self.model_copy(update={"large": self.large_judge.with_settings(settings)})

    def builder(self, cache_settings: CacheSettings) -> Builder:
        """One judge per tenant; the small one may be used for the tenant only that it was distilled for.

        Another threshold than the default is applied to the probability of whichever judge answered.
        """
        from darklode.pipeline.judge.threshold import Thresholded

        small, large, band = self.small_judge, self.large_judge, self.band
        build_small, build_large = small.builder(cache_settings), large.builder(cache_settings)
        lowest_grade = min(large.grades(), default=None)

        def build(chunks: TenantChunks, threshold: float) -> Judge:
            judges = build_small(chunks, small.cut), build_large(chunks, large.cut)
            cascade = Cascade(*judges, band, lowest_grade)
            return (
                cascade
                if threshold == type(self).model_fields["threshold"].default
                else Thresholded(cascade, threshold)
            )

        return build

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a verdict: the small judge by its content, the large one by its identity."""
        record = distilled_record(self.small).get("id")
        return super().identity | {"small": record, "large": self.large_judge.identity}

    def prices(self) -> tuple[float, float]:
        """Those of the large judge."""
        return self.large_judge.prices()

    def grades(self) -> dict[int, str]:
        """Those of the large judge."""
        return self.large_judge.grades()

    def fetch(self) -> None:
        self.small_judge.fetch()
        self.large_judge.fetch()

    def estimate(self, tables: Tables, cache_settings: CacheSettings, seed: int) -> Estimate | None:
        """That of the large judge for its share of the pairs on queries that did not choose the band."""
        estimate = self.large_judge.estimate(tables, cache_settings, seed)
        return estimate and estimate.scaled(self.band.large_share)

    def missing(self) -> list[str]:
        """What either judge lacks."""
        self.band  # noqa: B018 (a folder without a distilled judge is an error)
        return [*self.small_judge.missing(), *self.large_judge.missing()]


KIND = CascadeSettings
