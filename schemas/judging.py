"""The settings of judging: who judges, alone or with others, what calls may cost, and whose labels stand."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.kinds import KindGroup, KindSection, OfKind
from darklode.schemas.paths import FilePath
from darklode.schemas.section import NoRow, Section, Share

JUDGES = KindGroup("judges", "darklode.pipeline.judge.kinds")


class MemberSettings(KindSection):
    """One judge; each kind has keys of its own."""

    kind: str = Field("embedded", description="who judges; each kind has keys of its own")
    threshold: Share | Literal["fitted"] = Field(
        0.5,
        description="relevant from this probability on (of the embedded judge 0.25); fitted: from the one that agrees "
        "best with judge.human",
    )

    @property
    def cut(self) -> float:
        """The threshold as a number: the kind's own where it is yet to be fitted."""
        return float(type(self).model_fields["threshold"].default if self.threshold == "fitted" else self.threshold)

    def prices(self) -> tuple[float, float]:
        """What a million prompt tokens cost, and a million completion tokens; 0 for a judge of one's own."""
        return 0.0, 0.0

    def grades(self) -> dict[int, str]:
        """What each grade of a relevant chunk is called; empty where the judge gives none."""
        return {}


class ChatServer(Section):
    """How a language model behind an OpenAI-compatible server is called, and what it may cost."""

    model: str = Field("", description="its name at the server")
    key_env: NoRow[str] = Field("", description="environment variable with the server's key; empty: none is sent")
    timeout: NoRow[float] = Field(120, gt=0, description="seconds until a call counts as failed")
    give_up_after: NoRow[float] = Field(600, gt=0, description="seconds of failing until the run stops")
    max_in_flight: NoRow[int] = Field(
        256, gt=0, description="most calls under way at once; fewer where the server wants it"
    )
    prompt_price_per_million: NoRow[float] = Field(
        0, ge=0, description="price of a million prompt tokens, for cost and limit"
    )
    completion_price_per_million: NoRow[float] = Field(0, ge=0, description="price of a million completion tokens")
    spending_limit: NoRow[float | None] = Field(None, ge=0, description="stop before this is exceeded; null: no limit")
    token_limit: NoRow[int | None] = Field(None, ge=0, description="stop before more tokens are used; null: no limit")

    @model_validator(mode="after")
    def _limits_what_costs(self) -> Self:
        if self.spending_limit is not None and not self.prompt_price_per_million + self.completion_price_per_million:
            raise ValueError("spending_limit needs a price per million tokens: without one nothing is ever spent")
        return self


class JudgeSettings(MemberSettings):
    """Who judges, alone or with others, and which human labels check it."""

    depth: Literal["full", "adaptive"] = Field(
        "full", description="full: every pair of the pool; adaptive: the likeliest first, until `recall` is reached"
    )
    recall: float = Field(0.9, gt=0, lt=1, description="adaptive: share of the pool's positives to find")
    random_share: float = Field(0.1, gt=0, lt=1, description="adaptive: most of the pool that is judged at random")
    human: NoRow[FilePath[str | None]] = Field(
        None, min_length=1, description="CSV of human labels: query_id, chunk_id, relevance, and tenant where needed"
    )
    panel: tuple[Annotated[MemberSettings, OfKind(JUDGES, MemberSettings)], ...] = Field(
        (), description="further judges of the same pairs: a list of sections with kind, threshold and the kind's keys"
    )
    vote: Literal["majority", "mean"] = Field(
        "majority", description="of a panel: most labels, or the weighted mean probability against the threshold"
    )
    weights: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (), description="of the panel's probabilities, this judge's first; empty: all equal"
    )

    @model_validator(mode="after")
    def _panel_can_vote(self) -> Self:
        if self.weights and (len(self.weights) != 1 + len(self.panel) or not any(self.weights)):
            raise ValueError(f"weights must name {1 + len(self.panel)} numbers, this judge's first, and one above 0")
        if any(member.threshold == "fitted" for member in self.panel):
            raise ValueError("threshold fitted is for the judge itself; give members of the panel a number")
        if self.threshold == "fitted" and self.human is None:
            raise ValueError("threshold fitted needs judge.human, a CSV of human labels")
        if self.threshold == "fitted" and self.panel and self.vote == "majority":
            raise ValueError("threshold fitted needs judge.vote mean: a majority compares no probability")
        return self


class LabelSettings(Section):
    """Whose labels the dataset has."""

    human_overrides: bool = Field(
        False, description="where people labelled a pair (judge.human), their label stands instead of the judge's"
    )
