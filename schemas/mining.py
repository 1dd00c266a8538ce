"""Settings of `mine-logs` alone."""

from datetime import date
from typing import Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.kinds import KindName, KindSection
from darklode.schemas.paths import FolderOrName
from darklode.schemas.section import ColumnNames, Section, Share
from darklode.schemas.shared import InputFormat, LocalModelSection, MaskPersonalData, ModelPath, Statement


class LogColumns(ColumnNames):
    """Column names in the search log; for UBI logs only event_id, dwell_seconds, variant and tenant."""

    event_id: str | None = Field(None, description="event_id, else a hash of the row")
    search_id: str | None = Field(None, description="search_id, else session, query and time")
    session_id: str | None = Field(None, description="session_id")
    user_id: str | None = Field(None, description="user_id, client_id")
    timestamp: str | None = Field(None, description="timestamp")
    query: str | None = Field(None, description="query, user_query, text")
    doc_id: str | None = Field(None, description="doc_id, object_id, document_id")
    position: str | None = Field(None, description="position, ordinal, rank")
    clicked: str | None = Field(None, description="clicked, click")
    dwell_seconds: str | None = Field(None, description="dwell_seconds")
    variant: str | None = Field(None, description="arm, variant")
    tenant: str | None = Field(None, description="tenant")


class LogSettings(Section):
    """Search log: format, columns, and bot filter."""

    format: Literal["auto", "csv", "jsonl", "parquet", "ubi"] = Field("auto", description=InputFormat)
    statement: Statement = ""
    columns: LogColumns = LogColumns()
    click_actions: tuple[str, ...] = Field(
        ("click", "item_click", "product_click", "result_click"), description="UBI: action names that are clicks."
    )
    time_zone: str = Field("UTC", description="IANA time zone of timestamps without an offset, such as Europe/Berlin.")
    first_position: Literal["auto", 0, 1] = Field(
        "auto", description="Number of the top rank in the log. auto: 0 if any position in a day's files is 0, else 1."
    )
    max_late_days: int = Field(
        2, ge=0, description="Days that an event may arrive late; events that are later are rejected."
    )
    mask_personal_data: MaskPersonalData = True
    bot_queries_per_minute: int = Field(
        30, ge=0, description="Drop a session's day as a bot's if any minute has more searches than this. 0: keep all."
    )
    bot_click_share: Share = Field(
        0.9,
        description="Drop a session's day as a bot's if at least this share of 50 or more impressions was clicked. "
        "0: keep all.",
    )


class AdmissionSettings(Section):
    """Detection of anomalous days."""

    false_alarm_rate: float = Field(
        0.003,
        ge=0,
        lt=0.5,
        description="Share of ordinary nights that may be held back by chance. Smaller: fewer false alarms, and less "
        "garbage is found. 0: hold nothing back.",
    )
    confirm_days: int = Field(
        3,
        ge=1,
        description="Days at a new level, such as a launch, until it is admitted without a decision. What was clicked "
        "must agree with earlier days (docs/guides/mine.md).",
    )


Merge = Literal["strongest", "all"]


class ClickSettings(Section):
    """Positives and hard negatives from clicks."""

    model: Literal["paper", "coec", "pbm"] = Field(
        "paper",
        description="Click model. paper: any click is a positive (ScalingNote, 4.1). coec, pbm: clicks over expected "
        "clicks, with expectations by rank or from a position-based model.",
    )
    min_clicks: int = Field(1, gt=0, description="Minimum clicks of a positive.")
    min_click_ratio: float = Field(
        1.0, gt=0, description="coec, pbm: minimum ratio of clicks to expected clicks of a positive."
    )
    confidence: float = Field(
        0.7, gt=0, lt=1, description="coec, pbm: minimum probability that the true ratio is at least min_click_ratio."
    )
    negatives: Literal["lower_half", "exposed", "skipped"] = Field(
        "lower_half",
        description="Candidates for hard negatives. exposed: any shown document without a click. lower_half: the same, "
        "but documents in the upper half of the result list only if there is no other. skipped: only those above the "
        "lowest click of their search (skip-above).",
    )
    negative_window: Literal["day", "period"] = Field(
        "day",
        description="day: draw a negative from impressions up to the positive's day, or of the first later day that "
        "has any; later days change no earlier triplet. period: draw from all days.",
    )
    min_exposures: float = Field(
        1, gt=0, description="Minimum impressions of a hard negative; coec, pbm: minimum expected examinations."
    )
    min_dwell_seconds: float | None = Field(
        None,
        gt=0,
        description="Minimum dwell time of a click that makes a positive; shorter clicks make neither positive nor "
        "negative. null: no minimum.",
    )


class RelevanceSettings(LocalModelSection):
    """Positives and hard negatives from a ranker."""

    ranker: Literal["none", "judge", "cross_encoder"] = Field(
        "none",
        description="none: use click data only. judge: rank with the section `judge`. cross_encoder: rank with "
        "relevance.model, so that the judge can verify the pairs independently.",
    )
    model: FolderOrName[str | None] = Field(None, min_length=1, description=ModelPath)
    retrievers: tuple[str, ...] = Field(
        ("bm25",), description="Retrievers whose candidates are ranked, named as in pool.retrievers."
    )
    top_k: int = Field(
        10, gt=0, description="K: documents down to this rank are never hard negatives (ScalingNote, 4.1)."
    )
    top_t: int = Field(50, gt=0, description="T: the hard negative is drawn from ranks K+1 to T (ScalingNote, 4.1).")

    @model_validator(mode="after")
    def _cross_encoder_has_a_model(self) -> Self:
        if self.ranker == "cross_encoder" and self.model is None:
            raise ValueError("ranker cross_encoder needs relevance.model, the name of the model")
        return self

    @model_validator(mode="after")
    def _ranks_for_negatives(self) -> Self:
        if self.top_t <= self.top_k:
            raise ValueError(
                f"top_t {self.top_t} must be above top_k {self.top_k}: negatives are drawn from the ranks between"
            )
        return self


class TermWeightingSettings(KindSection):
    """Importance of a query's terms."""

    kind: KindName = "log"
    refresh_days: int = Field(
        7,
        ge=0,
        description="Learn term weights and click models again every N days of the log. 0: only with --refresh.",
    )


class AssociateSettings(Section):
    """Queries that share their positives and negatives (ScalingNote, Algorithm 1)."""

    rule: Literal["paper", "guarded"] = Field(
        "guarded",
        description="paper: Algorithm 1. guarded: a click association by 2 terms only if these make up half of the "
        "query's importance, else by 3; and the lender must have more than one strong term. Consecutive queries of a "
        "session with a common term or clicked document are associated, too. A clicked document is lent only if it was "
        "in the upper half of the borrower's results, or if two queries lend it.",
    )
    th_click: Share = Field(
        0.5, description="Click association: each of the query's 2 best terms must score above this in the lender."
    )
    th_rel: Share = Field(
        0.3, description="Relevance association: each query's 4 best terms must score above this in the other query."
    )
    max_lenders: int = Field(
        100, ge=0, description="Maximum number of lenders with the same terms, earliest searched first. 0: no limit."
    )
    max_lenders_per_query: int = Field(
        20,
        ge=0,
        description="Maximum number of lenders of a query per association kind, best match first. 0: no limit.",
    )


class MiningSettings(Section):
    """Mined triplets: merging, verification, and the test set."""

    merge: Merge = Field(
        "strongest",
        description="strongest: one triplet per query and positive, from the strongest source (own click, own "
        "relevance, lent click, lent relevance). all: one per source.",
    )
    text_characters: int = Field(
        2000, gt=0, description="Length of a document's text in triplets, after its title, in characters."
    )
    verify_share: Share | None = Field(
        None,
        description="Share of the mined triplets whose two documents the judge verifies. null: 100 per source and "
        "tier, at most 1,200, but none with the embedded judge.",
    )
    keep_refuted: bool = Field(True, description="false: drop triplets whose positive the judge refutes.")
    test_from: date | None = Field(
        None, description="First day of the test period, which is not mined for training. null: no test period."
    )
    test_multi_hop: bool = Field(
        False, description="true: make multi-hop test triplets among queries that are new in the test period."
    )
    test_pool_size: int | None = Field(
        None, ge=0, description="Number of documents without a pair in the test pool. null: all."
    )
