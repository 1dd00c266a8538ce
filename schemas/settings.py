"""All settings, their defaults and bounds; larger parts have files of their own.

Where a default is a paper's, the description says so. What a judge, an encoder or a planner of one kind has beside the
keys here is declared by that kind, in its own file.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.evaluation import AuditSettings, EvaluateSettings
from darklode.schemas.generation import GENERATORS, GenerateSettings
from darklode.schemas.judging import JUDGES, JudgeSettings, LabelSettings
from darklode.schemas.kinds import KindGroup, OfKind
from darklode.schemas.laws import LawSettings
from darklode.schemas.mining import (
    AdmissionSettings,
    AssociateSettings,
    ClickSettings,
    LogSettings,
    MiningSettings,
    PlannerSettings,
    RelevanceSettings,
)
from darklode.schemas.paths import FilePath
from darklode.schemas.pooling import (
    ENCODERS,
    RETRIEVERS,
    Bm25Settings,
    EncoderSettings,
    PoolSettings,
    RetrieverSettings,
    VectorSettings,
)
from darklode.schemas.section import Bound, NoRow, Section, Share
from darklode.schemas.serving import INDEXES, IndexSettings, SemanticIdSettings
from darklode.schemas.towers import DualSettings, TowerSettings

PLANNERS = KindGroup("planners", "darklode.pipeline.mine.term_weighting.kinds")


class DocumentColumns(Section):
    """Names of the source's columns (or front-matter keys, or HTML meta names)."""

    doc_id: str | None = Field(None, description="null: the first present of doc_id, _id, id, docid")
    title: str | None = Field(None, description="null: title")
    topic: str | None = Field(None, description="null: topic")
    text: str | None = Field(None, description="null: the first present of text, body, content, contents")
    url: str | None = Field(None, description="null: url")
    tenant: str | None = Field(None, description="null: tenant")


class QueryColumns(Section):
    """Names of the source's columns."""

    query_id: str | None = Field(None, description="null: the first present of query_id, _id, id, qid")
    text: str | None = Field(None, description="null: the first present of text, query, user_query")
    timestamp: str | None = Field(None, description="null: timestamp")
    count: str | None = Field(None, description="null: count")
    tenant: str | None = Field(None, description="null: tenant")


class DocumentSource(Section):
    """How documents are read."""

    format: Literal["auto", "folder", "jsonl", "csv", "parquet", "beir"] = Field(
        "auto", description="auto: by the path's ending, or by what the folder holds"
    )
    columns: DocumentColumns = DocumentColumns()


class QuerySource(Section):
    """How queries are read."""

    format: Literal["auto", "text", "jsonl", "csv", "parquet", "beir"] = Field(
        "auto", description="auto: by the path's ending, or by what the folder holds"
    )
    columns: QueryColumns = QueryColumns()


class IngestSettings(Section):
    """What comes in, and how much of it may be unreadable."""

    documents: DocumentSource = DocumentSource()
    queries: QuerySource = QuerySource()
    tenant: str = Field("default", min_length=1, description="tenant of every row that does not name its own")
    require_tenant: bool = Field(False, description="reject rows that do not name their own tenant")
    max_row_bytes: int = Field(16_000_000, gt=0, description="a longer line, row or file is rejected, not read")
    max_reject_share: Bound[Share] = Field(
        0.2, description="fail when a larger share of the rows cannot be read: a wrong mapping, not a small dataset"
    )


class CleanSettings(Section):
    """Which queries are kept."""

    keep_all: bool = Field(False, description="let every query through (test collections); nothing is dropped")
    noise: bool = Field(True, description="drop code, stack traces, log lines, test strings and empty queries")
    mask_personal_data: bool = Field(
        True, description="mask e-mail addresses, phone and card numbers, IP and MAC addresses, and tokens"
    )
    min_percentile: float = Field(25, ge=0, le=100, description="drop shorter word counts (DevRev-Search, 3.1)")
    max_percentile: float = Field(75, ge=0, le=100, description="drop longer word counts (DevRev-Search, 3.1)")
    language: str | tuple[str, ...] | None = Field(
        "en", description="keep this language, ISO 639 code, or these, such as [en, zh]; null keeps all"
    )
    language_score: Share = Field(0.8, description="another language counts only from this probability on")
    deduplicate: bool = Field(True, description="keep one of the queries that differ in case and white space only")
    clusters: Literal["auto"] | Annotated[int, Field(gt=0)] = Field(
        "auto", description="k-means clusters per tenant, which no split cuts; auto: 10·√n, at most n"
    )
    per_cluster: Literal["auto"] | Annotated[int, Field(ge=0)] = Field(
        "auto",
        description="queries kept per cluster, nearest its centre (DevRev-Search: one); auto: one of those that ask in "
        "the same words; 0 keeps all",
    )

    @model_validator(mode="after")
    def _percentiles_rise(self) -> Self:
        if self.min_percentile >= self.max_percentile:
            raise ValueError(f"min_percentile {self.min_percentile} must be below max_percentile {self.max_percentile}")
        return self

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that are kept; none where all are."""
        return (self.language,) if isinstance(self.language, str) else self.language or ()


class ChunkSettings(Section):
    """How documents are cut."""

    size: int = Field(500, gt=0, description="longest chunk, in characters (DevRev-Search, 3.2)")
    overlap: int = Field(0, ge=0, description="characters shared by neighbours (DevRev-Search: none)")

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Self:
        if self.overlap >= self.size:
            raise ValueError(f"overlap {self.overlap} must be smaller than size {self.size}")
        return self


class CacheSettings(Section):
    """Where vectors and verdicts are kept across runs."""

    root: NoRow[FilePath[str | None]] = Field(None, description="folder or s3:// prefix; null: the user's cache")
    dtype: Literal["float32", "float16"] = Field("float32", description="how vectors are kept")


class SplitSettings(Section):
    """How queries are split."""

    by: Literal["cluster", "cluster_and_positives"] = Field(
        "cluster",
        description="what stands on one side alone: near-duplicate queries; cluster_and_positives: positives, too",
    )
    test_share: Share = Field(0.25, description="share of queries held out as test (DevRev-Search: 92 of 383)")
    validation_share: Share = Field(0.1, description="share of the rest used for validation (ScalingNote: 9:1)")
    generated: FilePath[str | None] = Field(
        None, description="a folder of `darklode generate`, whose kept queries are learned from, too; none is held out"
    )


TextForm = Literal["title_heading_text", "text"]


class TripletSettings(Section):
    """Which positives are learned from, how many negatives each has, and how they are mined."""

    min_probability: Share = Field(
        0.6,
        description="a judge's positive is learned from at this probability on; one without any is, too, unless its "
        "log-probabilities tie or contradict it",
    )
    min_letters: int = Field(
        15, ge=0, description="minimum letters and digits of a judge's positive, without headings and links; 0: none"
    )
    max_positives: int = Field(5, ge=0, description="positives of a query that are learned from, best first; 0: all")
    same_document: bool = Field(
        False, description="chunks of a document that holds a positive of the query may be its negatives"
    )
    negatives: int = Field(16, gt=0, description="hard negatives per positive (DevRev-Search, A.4)")
    margin: Share = Field(0.05, description="a mined negative scores below s⁺ − |s⁺|·margin")
    text_form: TextForm = Field(
        "title_heading_text",
        description="what a passage holds: title, heading and text, one a line, as the judge reads it; or text alone",
    )


class ReviewSettings(Section):
    """Which pairs people are asked about."""

    query_share: float = Field(0.1, gt=0, le=1, description="share of the queries (DevRev-Search, 3.3: 10 %)")
    pairs: int = Field(400, ge=0, description="most pairs of these queries, over all strata; 0: all of them")
    shared: Share = Field(0.2, description="share of them that every reviewer labels; any other one labels the rest")
    show_judge: NoRow[bool] = Field(
        False, description="show reviewers what the judge said: quicker, and no longer blind"
    )


class ValidationSettings(Section):
    """What the judge must reach before the dataset may be published; null: not asked for."""

    min_kappa: float | None = Field(None, ge=-1, le=1, description="Cohen's kappa of judge and people")
    max_null_rate: Share | None = Field(None, description="most of the verdicts that could not be read")
    min_recall: Share | None = Field(None, description="share of the pool's positives that the judge found")
    bootstrap: int = Field(1000, gt=0, description="resamples of the queries for each interval")


class CardSettings(Section):
    """What the dataset card says that no table knows."""

    name: str = Field("", description="the dataset's name; empty: the run folder's")
    license: str = Field("unknown", description="licence of the documents and queries")


class RunnerSettings(Section):
    """Where shards of a stage's work are done; it changes no result."""

    kind: Literal["local", "ray"] = Field("local", description="local: in the flow's process; ray: on a Ray cluster")
    address: str | None = Field(
        None, description="head:6379 on one of its machines, ray://head:10001 from outside; null: this machine's"
    )
    cpus_per_task: float = Field(1, gt=0, description="CPUs of the cluster that a task takes")
    gpus_per_task: float = Field(0, ge=0, description="GPUs of the cluster that a task takes")


class Settings(Section):
    """All settings, of `build-benchmark` and of `mine-logs`; a section is all that its stage may see."""

    seed: int = Field(13, ge=0, description="seeds sampling, clustering, splits and intervals")
    ingest: IngestSettings = IngestSettings()
    clean: CleanSettings = CleanSettings()
    chunk: ChunkSettings = ChunkSettings()
    encoders: dict[str, Annotated[EncoderSettings, OfKind(ENCODERS, EncoderSettings)]] = Field(
        {}, description="named encoders; pool.retrievers may name them"
    )
    retrievers: dict[str, Annotated[RetrieverSettings, OfKind(RETRIEVERS, RetrieverSettings)]] = Field(
        {}, description="named retrievers, for kinds with keys; pool.retrievers may name them"
    )
    bm25: Bm25Settings = Bm25Settings()
    vectors: VectorSettings = VectorSettings()
    cache: CacheSettings = CacheSettings()
    pool: PoolSettings = PoolSettings()
    judge: Annotated[JudgeSettings, OfKind(JUDGES, JudgeSettings)] = Field(JudgeSettings(), validate_default=True)
    labels: LabelSettings = LabelSettings()
    split: SplitSettings = SplitSettings()
    triplets: TripletSettings = TripletSettings()
    audit: AuditSettings = AuditSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    adapt: AdaptSettings = AdaptSettings()
    towers: TowerSettings = TowerSettings()
    dual: DualSettings = DualSettings()
    laws: LawSettings = LawSettings()
    index: Annotated[IndexSettings, OfKind(INDEXES, IndexSettings)] = Field(IndexSettings(), validate_default=True)
    semantic_ids: SemanticIdSettings = SemanticIdSettings()
    generate: Annotated[GenerateSettings, OfKind(GENERATORS, GenerateSettings)] = Field(
        GenerateSettings(), validate_default=True
    )
    logs: LogSettings = LogSettings()
    admission: AdmissionSettings = AdmissionSettings()
    click: ClickSettings = ClickSettings()
    relevance: RelevanceSettings = RelevanceSettings()
    planner: Annotated[PlannerSettings, OfKind(PLANNERS, PlannerSettings)] = Field(
        PlannerSettings(), validate_default=True
    )
    associate: AssociateSettings = AssociateSettings()
    mining: MiningSettings = MiningSettings()
    review: ReviewSettings = ReviewSettings()
    validation: ValidationSettings = ValidationSettings()
    card: CardSettings = CardSettings()
    runner: RunnerSettings = RunnerSettings()

    @model_validator(mode="after")
    def _humans_are_known(self) -> Self:
        if self.labels.human_overrides and self.judge.human is None:
            raise ValueError("labels.human_overrides needs judge.human, a CSV of human labels")
        return self
