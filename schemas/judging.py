"""Settings of judging: judge, panel, human labels, and the limits of paid calls."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.kinds import KindGroup, KindName, KindSection, OfKind
from darklode.schemas.paths import FilePath
from darklode.schemas.section import NoRow, Section, Share
from darklode.schemas.shared import ApiKeyEnv, MaxConcurrency, ModelName, RetryTimeout, SpendingLimit, Timeout

JUDGES = KindGroup("judges", "darklode.pipeline.judge.kinds")
NO_JUDGE = "none"
"""Kind of judge of a run whose labels are all given."""


class MemberSettings(KindSection):
    """One judge.

    Attributes:
        HAS_SCORES: its probability comes from a score, so that human grades can be fitted to it.
    """

    HAS_SCORES: ClassVar[bool] = False

    kind: KindName = "embedded"
    threshold: Share | Literal["fitted"] = Field(
        0.5,
        description="Minimum probability of a relevant label (embedded judge: 0.33, encoder judge: 0.36). fitted: the "
        "threshold that agrees best with judge.human_labels.",
    )

    @property
    def cut(self) -> float:
        """The threshold as a number; the kind's default if it is yet to be fitted."""
        return float(type(self).model_fields["threshold"].default if self.threshold == "fitted" else self.threshold)

    def prices(self) -> tuple[float, float]:
        """Prices of a million prompt tokens and of a million completion tokens; 0 for local judges."""
        return 0.0, 0.0

    def grades(self) -> dict[int, str]:
        """Name of each grade of relevance; empty for a judge without grades."""
        return {}


class ChatServer(Section):
    """Calls to a language model behind an OpenAI-compatible server, and their limits."""

    model: str = Field("", description=ModelName)
    api_key_env: ApiKeyEnv = ""
    timeout: Timeout = 120
    retry_timeout: RetryTimeout = 600
    max_concurrency: MaxConcurrency = 256
    prompt_price_per_million: NoRow[float] = Field(
        0, ge=0, description="Price of a million prompt tokens, for the reported cost and the spending limit."
    )
    completion_price_per_million: NoRow[float] = Field(0, ge=0, description="Price of a million completion tokens.")
    spending_limit: SpendingLimit = None
    token_limit: NoRow[int | None] = Field(
        None, ge=0, description="Stop before more tokens than this are used. null: no limit."
    )

    @model_validator(mode="after")
    def _spending_limit_has_a_price(self) -> Self:
        if self.spending_limit is not None and not self.prompt_price_per_million + self.completion_price_per_million:
            raise ValueError(
                "spending_limit needs prompt_price_per_million or completion_price_per_million; both are 0"
            )
        return self


class JudgeSettings(MemberSettings):
    """Judge or panel of judges, judging strategy, and human labels."""

    strategy: Literal["full", "adaptive"] = Field(
        "full",
        description="full: judge every pair of the pool. adaptive: judge the pairs that are most likely relevant "
        "first, until target_recall is reached.",
    )
    target_recall: float = Field(
        0.9, gt=0, lt=1, description="Strategy adaptive: share of the pool's relevant pairs to find."
    )
    random_share: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Strategy adaptive: maximum share of the pool to judge at random, to estimate the recall.",
    )
    human_labels: NoRow[FilePath[str | None]] = Field(
        None,
        min_length=1,
        description="CSV of human labels with the columns query_id, chunk_id, relevance, tenant if there are several, "
        "and weight if known (pairs of the run that a label of a sample stands for).",
    )
    panel: tuple[Annotated[MemberSettings, OfKind(JUDGES, MemberSettings)], ...] = Field(
        (),
        description="More judges of the same pairs: a list of sections with kind, threshold and the kind's settings.",
    )
    vote: Literal["majority", "mean", "weighted"] = Field(
        "majority",
        description="How a panel decides. majority: majority of the labels. weighted: majority of the weights. mean: "
        "weighted mean probability against the threshold.",
    )
    panel_weights: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (),
        description="Weights of the judges' labels (vote weighted) and probabilities, this judge's first. "
        "Empty: equal weights. `darklode judge calibration` proposes weights.",
    )

    probe_pairs: NoRow[int] = Field(
        40,
        ge=0,
        description="Number of pairs per kind of probe (`judge_probe`): altered pairs, such as planted instructions, "
        "that show how far the judge can be trusted. A build probes LLM judges. 0: no probes.",
    )

    @property
    def can_fit_grades(self) -> bool:
        """Whether people's grades can be fitted to the judge's scores; not for a panel."""
        return self.HAS_SCORES and not self.panel

    def verdict_grades(self) -> dict[int, str]:
        """Name of each grade of relevant verdicts; of a panel, the grades that all its graded judges share."""
        scales = [names for judge in (self, *self.panel) if (names := judge.grades())]
        return scales[0] if scales and all(names.keys() == scales[0].keys() for names in scales) else {}

    @model_validator(mode="after")
    def _panel_can_vote(self) -> Self:
        if self.panel_weights and (len(self.panel_weights) != 1 + len(self.panel) or not any(self.panel_weights)):
            raise ValueError(
                f"panel_weights needs {1 + len(self.panel)} numbers, this judge's first, at least one of them above 0"
            )
        if any(member.threshold == "fitted" for member in self.panel):
            raise ValueError("threshold fitted is for the judge itself; set a number for the members of the panel")
        if self.threshold == "fitted" and self.human_labels is None:
            raise ValueError("threshold fitted needs judge.human_labels, a CSV of human labels")
        if self.threshold == "fitted" and self.panel and self.vote != "mean":
            raise ValueError("threshold fitted needs judge.vote=mean, because the other votes use no probability")
        return self


class LabelSettings(Section):
    """Labels of the dataset."""

    test_precision: Share = Field(
        0.8,
        description="Wanted precision of the positives in qrels, by which systems are compared: expected share of "
        "relevant pairs, the mean of the judge's probabilities. Less probable positives are uncertain: no measure "
        "counts them.",
    )
    training_precision: Share = Field(
        0.7, description="Wanted precision of the positives in training_labels, from which triplets are made."
    )
    min_letters: int = Field(
        15,
        ge=0,
        description="Minimum number of letters and digits in a positive's text, without headings and links; shorter "
        "ones are uncertain. 0: no minimum.",
    )
    human_overrides: bool = Field(
        False, description="Replace the judge's label by the human label of a pair (judge.human_labels), if any."
    )
    binary: bool = Field(
        False, description="Write only 0 and 1 to qrels, whatever the grade. verdicts keeps the judge's grades."
    )
