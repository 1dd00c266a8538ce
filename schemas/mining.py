"""The settings of `mine-logs` alone."""

from datetime import date
from typing import Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.kinds import KindSection
from darklode.schemas.paths import FolderOrName
from darklode.schemas.section import Bound, NoRow, Section, Share


class LogColumns(Section):
    """Names of the source's columns; UBI logs have their own."""

    event_id: str | None = Field(None, description="null: event_id, or a hash of the row where there is none")
    search_id: str | None = Field(None, description="null: search_id, or session, query and time where there is none")
    session_id: str | None = Field(None, description="null: session_id")
    timestamp: str | None = Field(None, description="null: timestamp")
    query: str | None = Field(None, description="null: the first present of query, user_query, text")
    doc_id: str | None = Field(None, description="null: the first present of doc_id, object_id, document_id")
    position: str | None = Field(None, description="null: the first present of position, ordinal, rank")
    clicked: str | None = Field(None, description="null: the first present of clicked, click")
    dwell_seconds: str | None = Field(None, description="null: dwell_seconds")
    arm: str | None = Field(None, description="null: the first present of arm, variant")
    tenant: str | None = Field(None, description="null: tenant")


class LogSettings(Section):
    """How a search log is read, and whose searches are left out."""

    format: Literal["auto", "csv", "jsonl", "parquet", "ubi"] = Field(
        "auto", description="auto: ubi where there are ubi_events, else by each file's ending"
    )
    columns: LogColumns = LogColumns()
    click_actions: tuple[str, ...] = Field(
        ("click", "item_click", "product_click", "result_click"), description="UBI: actions that are clicks"
    )
    other_actions: tuple[str, ...] = Field(
        (
            *("global_click", "search", "on_search", "view_search_results", "type_filter", "brand_filter"),
            *("product_sort", "product_hover", "item_hover", "add_to_cart", "purchase", "product_purchase"),
            *("declined_product", "page_load", "page_exit", "404_redirect", "login", "logout"),
        ),
        description="UBI: actions that are known to be neither clicks nor impressions",
    )
    time_zone: str = Field("UTC", description="IANA name of the zone of times that name none")
    first_position: Literal["auto", 0, 1] = Field(
        "auto", description="what the log calls the first place; auto: 0 where any place of a day's files is 0"
    )
    late_days: int = Field(2, ge=0, description="an event may arrive so many days late; later ones are rejected")
    mask_personal_data: bool = Field(
        True, description="mask e-mail addresses, phone and card numbers, IP and MAC addresses, and tokens in queries"
    )
    bot_queries_per_minute: int = Field(
        30, ge=0, description="leave out a session's day with more searches than this in a minute; 0: keep all"
    )
    bot_click_share: Share = Field(
        0.9,
        description="leave out a session's day in which this share of at least 50 exposures was clicked; 0: keep all",
    )


class AdmissionSettings(Section):
    """Which days of the log are learned from."""

    hold: bool = Field(
        True, description="keep an implausible day out of all that is made until somebody decides; false: only name it"
    )
    limit: float = Field(
        5.0,
        gt=0,
        description="a day is implausible so many robust deviations from those before it (docs/guides/mine.md)",
    )


Merge = Literal["strongest", "all"]


class ClickSettings(Section):
    """What counts as a positive, and what as a hard negative."""

    model: Literal["paper", "coec", "pbm"] = Field(
        "paper",
        description="paper: any click (ScalingNote, 4.1); coec, pbm: clicks over those to expect at their places",
    )
    min_clicks: int = Field(1, gt=0, description="least clicks of a positive")
    min_ratio: float = Field(1.0, gt=0, description="coec, pbm: least clicks ÷ expected clicks of a positive")
    confidence: float = Field(
        0.8, gt=0, lt=1, description="coec, pbm: how sure it must be, after few clicks too, that min_ratio is reached"
    )
    negatives: Literal["exposed", "skipped"] = Field(
        "exposed", description="skipped: only what was shown above the lowest click of its search counts as exposed"
    )
    negatives_from: Literal["day", "period"] = Field(
        "day",
        description="day: a negative is drawn from what was exposed by the positive's day, or on the first later day "
        "that has any; period: from all days",
    )
    min_exposures: float = Field(
        1, gt=0, description="least exposures of a hard negative; coec, pbm: those to expect that a user looked at"
    )
    min_dwell_seconds: float | None = Field(
        None, gt=0, description="a shorter stay makes no positive (and still no negative); null: any"
    )


class RelevanceSettings(Section):
    """How a ranker finds a positive and a hard negative for each query of the log."""

    ranker: Literal["none", "judge", "cross_encoder"] = Field(
        "none",
        description="none: click data only; judge: the section judge ranks; cross_encoder: a model of its own, so that "
        "the judge can check it",
    )
    model: FolderOrName[str | None] = Field(
        None, min_length=1, description="cross_encoder: name on the hub, or a local folder"
    )
    revision: str | None = Field(None, description="cross_encoder: commit or tag on the hub")
    max_tokens: int | None = Field(None, gt=0, description="cross_encoder: longer pairs are cut; null: the model's own")
    device: NoRow[str] = Field("auto", description="cross_encoder: auto (every GPU, else the CPU), cpu, cuda or cuda:N")
    batch_size: NoRow[int] = Field(32, gt=0, description="cross_encoder: pairs per forward pass")
    retrievers: tuple[str, ...] = Field(
        ("bm25",), description="whose candidates are ranked: names as in pool.retrievers"
    )
    top_k: int = Field(10, gt=0, description="K: nothing ranked so high becomes a negative (ScalingNote, 4.1)")
    top_t: int = Field(50, gt=0, description="T: the negative is drawn from the ranks after K, up to T")

    @model_validator(mode="after")
    def _names_what_it_needs(self) -> Self:
        if self.ranker == "cross_encoder" and self.model is None:
            raise ValueError("ranker cross_encoder needs relevance.model, the name of the model")
        return self

    @model_validator(mode="after")
    def _leaves_something_to_draw(self) -> Self:
        if self.top_t <= self.top_k:
            raise ValueError(f"top_t {self.top_t} must be above top_k {self.top_k}: the negative lies between them")
        return self


class PlannerSettings(KindSection):
    """Who says how important a query's terms are; each kind has keys of its own."""

    kind: str = Field("log", description="who plans; each kind has keys of its own")
    refresh_days: int = Field(
        7, ge=0, description="learn anew every so many days of the log; 0: only with --refresh (click models, too)"
    )


class AssociateSettings(Section):
    """Which queries lend one another their evidence (ScalingNote, Algorithm 1)."""

    rule: Literal["paper", "guarded"] = Field(
        "guarded",
        description="paper: Algorithm 1 as it is; guarded: a click association asks for 2 terms only where they make "
        "half of the query's importance, else for 3, and for more than one strong term of the lender",
    )
    th_click: Share = Field(0.5, description="the 2 best terms of a query all score above it in the lender")
    th_rel: Share = Field(0.3, description="the 4 best terms of each query all score above it in the other")
    max_lenders: int = Field(
        100, ge=0, description="most queries that lend by the same terms, those searched first; 0: no bound"
    )
    max_per_query: int = Field(20, ge=0, description="most lenders of a query and kind, best match first; 0: no cap")


class MiningSettings(Section):
    """What becomes of the mined pairs."""

    merge: Merge = Field(
        "strongest",
        description="strongest: a query and positive once, by own clicks, own relevance, lent clicks or lent "
        "relevance; all: once for each of them",
    )
    text_characters: int = Field(2000, gt=0, description="a document stands for its title and so much of its text")
    median_share: Share = Field(
        0.167, description="share of pairs in tier median (ScalingNote, Table 1: 19.6 of 117.8 million)"
    )
    small_share: Share = Field(0.0076, description="share of pairs in tier small, all in median too (0.9 of 117.8)")
    verify_share: Share | None = Field(
        None,
        description="share of the mined pairs whose two documents the judge looks at; null: 100 pairs of each source "
        "and tier, at most 1,200, by any judge but the embedded one",
    )
    keep_refuted: bool = Field(True, description="false: a positive that the judge refutes makes no triplet")
    patch_share: Bound[Share] = Field(
        0.05,
        description="a big day's files are written anew once more than this share of its pairs has changed; until then "
        "the changes lie beside them; 0: at once",
    )
    test_from: date | None = Field(
        None, description="day from which on the log is test data and nothing is mined for training; null: never"
    )
    test_multi_hop: bool = Field(
        False, description="true: queries that are new in the test period lend one another test pairs, as for training"
    )
    test_pool: int | None = Field(None, ge=0, description="unpaired documents in the test pool; null: all")
