"""All settings with defaults, bounds and descriptions; the larger sections have modules of their own.

A description names the paper that a default comes from. The settings of a kind (of judge, encoder, …) are declared in
that kind's module.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.evaluation import EvaluateSettings
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
    RelevanceSettings,
    TermWeightingSettings,
)
from darklode.schemas.paths import FilePath
from darklode.schemas.pooling import (
    ENCODERS,
    RETRIEVERS,
    Bm25Settings,
    EncoderSettings,
    PoolSettings,
    RetrieverSettings,
    VectorSearchSettings,
)
from darklode.schemas.reranker import RerankerSettings
from darklode.schemas.section import Bound, ColumnNames, NoRow, Section, Share
from darklode.schemas.serving import INDEXES, IndexSettings, SemanticIdSettings
from darklode.schemas.shared import (
    AllowSameDocumentNegatives,
    InputFormat,
    MaskPersonalData,
    NumNegatives,
    RelativeMargin,
    Statement,
)
from darklode.schemas.towers import DistillSettings, DualSettings

TERM_WEIGHTINGS = KindGroup("term_weighting", "darklode.pipeline.mine.term_weighting.kinds")


class DocumentColumns(ColumnNames):
    """Column names in the documents' source (or front-matter keys, or HTML meta names)."""

    doc_id: str | None = Field(None, description="doc_id, _id, id, docid")
    title: str | None = Field(None, description="title")
    topic: str | None = Field(None, description="topic")
    text: str | None = Field(None, description="text, body, content, contents")
    url: str | None = Field(None, description="url")
    tenant: str | None = Field(None, description="tenant")


class QueryColumns(ColumnNames):
    """Column names in the queries' source."""

    query_id: str | None = Field(None, description="query_id, _id, id, qid")
    text: str | None = Field(None, description="text, user_query, query")
    timestamp: str | None = Field(None, description="timestamp")
    count: str | None = Field(None, description="count")
    tenant: str | None = Field(None, description="tenant")


class DocumentSource(Section):
    """Source of the documents."""

    format: Literal["auto", "folder", "jsonl", "csv", "parquet", "beir"] = Field("auto", description=InputFormat)
    statement: Statement = ""
    columns: DocumentColumns = DocumentColumns()


class QuerySource(Section):
    """Source of the queries."""

    format: Literal["auto", "text", "jsonl", "csv", "parquet", "beir"] = Field("auto", description=InputFormat)
    statement: Statement = ""
    columns: QueryColumns = QueryColumns()


class IngestSettings(Section):
    """Input data, and the tolerance for unreadable rows."""

    documents: DocumentSource = DocumentSource()
    queries: QuerySource = QuerySource()
    tenant: str = Field("default", min_length=1, description="Tenant of rows that name none.")
    require_tenant: bool = Field(False, description="Reject rows that name no tenant.")
    max_row_bytes: int = Field(16_000_000, gt=0, description="Reject longer lines, rows and files, unread.")
    max_reject_share: Bound[Share] = Field(
        0.2,
        description="Fail if a larger share of the rows is rejected; this catches a wrong column mapping.",
    )


DOCUMENTS_LANGUAGES = "documents"
"""Value of `clean.language`: keep the languages that the documents are written in."""


class CleanSettings(Section):
    """Filters of the queries."""

    keep_all: bool = Field(False, description="Skip all filters, for test collections whose queries must all stay.")
    noise: bool = Field(True, description="Drop code, stack traces, log lines, test strings and empty queries.")
    mask_personal_data: MaskPersonalData = True
    min_percentile: float = Field(
        5, ge=0, le=100, description="Drop queries with fewer words than this percentile (DevRev-Search, 3.1: 25)."
    )
    max_percentile: float = Field(
        95, ge=0, le=100, description="Drop queries with more words than this percentile (DevRev-Search, 3.1: 75)."
    )
    language: str | tuple[str, ...] | None = Field(
        DOCUMENTS_LANGUAGES,
        description="Language or languages to keep, as ISO 639 codes, such as [en, zh]. documents: those that at least "
        "5 % of the tenant's documents are written in. null: all.",
    )
    language_threshold: Share = Field(
        0.8,
        description="Minimum probability of another language to drop a query; high, because short queries are often "
        "misidentified.",
    )
    deduplicate: bool = Field(True, description="Keep one of the queries that differ only in case and white space.")
    n_clusters: Literal["auto"] | Annotated[int, Field(gt=0)] = Field(
        "auto",
        description="Number of k-means clusters per tenant; no cluster is divided between splits. auto: 10·√n, at "
        "most n.",
    )
    max_per_cluster: Literal["auto"] | Annotated[int, Field(ge=0)] = Field(
        "auto",
        description="Maximum number of queries to keep per cluster, nearest its centre (DevRev-Search: 1). auto: one "
        "of each group of near-duplicates. 0: all.",
    )

    @model_validator(mode="after")
    def _percentiles_ascend(self) -> Self:
        if self.min_percentile >= self.max_percentile:
            raise ValueError(f"min_percentile {self.min_percentile} must be below max_percentile {self.max_percentile}")
        return self

    @property
    def detects_languages(self) -> bool:
        """Whether the languages to keep are those of the documents."""
        return self.language == DOCUMENTS_LANGUAGES

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages to keep; empty if all are kept, or those of the documents."""
        if self.detects_languages:
            return ()
        return (self.language,) if isinstance(self.language, str) else self.language or ()


class ChunkSettings(Section):
    """Splitting of documents into chunks."""

    size: int = Field(500, gt=0, description="Maximum chunk length in characters (DevRev-Search, 3.2: 500).")
    overlap: int = Field(0, ge=0, description="Characters that neighbouring chunks share (DevRev-Search: 0).")

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Self:
        if self.overlap >= self.size:
            raise ValueError(f"overlap {self.overlap} must be smaller than size {self.size}")
        return self


class CacheSettings(Section):
    """Cache of vectors and verdicts across runs."""

    root: NoRow[FilePath[str | None]] = Field(
        None, description="Folder or s3:// prefix. null: the user's cache folder."
    )
    vector_dtype: Literal["float32", "float16"] = Field("float32", description="Precision of cached vectors.")


class SplitSettings(Section):
    """Train, validation and test splits of the queries."""

    group_by: tuple[Literal["session", "user", "positive"], ...] = Field(
        ("session",),
        description="What no two splits share, besides near-duplicate queries. session, user: a query belongs to the "
        "split of the session (or user) that searched it first, and only sessions of that split are evidence for it "
        "(`mine`). positive: drop training triplets whose positive is one of a held-out query. []: neither.",
    )
    test_share: Share = Field(0.25, description="Share of the queries in the test split (DevRev-Search: 92 of 383).")
    validation_share: Share = Field(
        0.1, description="Share of the remaining queries in the validation split (ScalingNote: 9:1)."
    )
    generated_queries: FilePath[str | None] = Field(
        None,
        description="Folder of `darklode generate` whose queries are added to the training split. null: none.",
    )


TextForm = Literal["title_heading_text", "text"]


class TripletSettings(Section):
    """Training triplets: positives and mined hard negatives."""

    max_positives: int = Field(
        5, ge=0, description="Maximum number of positives per query, most probable first. 0: all."
    )
    allow_same_document_negatives: AllowSameDocumentNegatives = False
    num_negatives: NumNegatives = 16
    relative_margin: RelativeMargin = 0.05
    text_form: TextForm = Field(
        "title_heading_text",
        description="Text of a passage. title_heading_text: title, heading and text, a line each, as the judge reads "
        "it. text: text alone.",
    )


class ReviewSettings(Section):
    """Sample of pairs for human review."""

    query_share: float = Field(
        0.1, gt=0, le=1, description="Share of the queries to review (DevRev-Search, 3.3: 10 %)."
    )
    max_pairs: int = Field(400, ge=0, description="Maximum number of pairs of these queries, stratified. 0: all pairs.")
    overlap_share: Share = Field(
        0.2, description="Share of the pairs that every reviewer labels, for inter-annotator agreement."
    )
    show_judge: NoRow[bool] = Field(
        False, description="Show reviewers the judge's label: faster, but the review is no longer blind."
    )


class ValidationSettings(Section):
    """Minimum quality of the judge, checked before the dataset is published. null: not checked."""

    min_kappa: float | None = Field(None, ge=-1, le=1, description="Minimum Cohen's kappa of judge and humans.")
    max_null_rate: Share | None = Field(None, description="Maximum share of unreadable verdicts.")
    min_recall: Share | None = Field(None, description="Minimum share of the pool's positives that the judge found.")
    max_probe_rate: Share | None = Field(
        None,
        description="Maximum rate of wrong replies over the kinds of probes with at least 10 readable ones "
        "(`judge_probe`).",
    )


class CardSettings(Section):
    """Dataset card."""

    name: str = Field("", description="Name of the dataset. Empty: the run folder's name.")
    license: str = Field("unknown", description="Licence of the documents and queries.")


class RunnerSettings(Section):
    """Where shards of a stage run; the results do not depend on it."""

    kind: Literal["local", "ray"] = Field(
        "local", description="local: in the flow's process. ray: as tasks on a Ray cluster."
    )
    address: str | None = Field(
        None,
        description="Ray address: head:6379 on a machine of the cluster, ray://head:10001 from outside. null: start "
        "Ray on this machine.",
    )
    num_cpus: float = Field(1, gt=0, description="CPUs per Ray task.")
    num_gpus: float = Field(0, ge=0, description="GPUs per Ray task.")


class Settings(Section):
    """All settings. A stage receives only the sections that it depends on."""

    seed: int = Field(13, ge=0, description="Random seed of sampling, clustering, splits and intervals.")
    ingest: IngestSettings = IngestSettings()
    clean: CleanSettings = CleanSettings()
    chunk: ChunkSettings = ChunkSettings()
    encoders: dict[str, Annotated[EncoderSettings, OfKind(ENCODERS, EncoderSettings)]] = Field(
        {}, description="Encoders by name, for pool.retrievers."
    )
    retrievers: dict[str, Annotated[RetrieverSettings, OfKind(RETRIEVERS, RetrieverSettings)]] = Field(
        {}, description="Retrievers by name, for kinds with settings, for pool.retrievers."
    )
    bm25: Bm25Settings = Bm25Settings()
    vector_search: VectorSearchSettings = VectorSearchSettings()
    cache: CacheSettings = CacheSettings()
    pool: PoolSettings = PoolSettings()
    judge: Annotated[JudgeSettings, OfKind(JUDGES, JudgeSettings)] = Field(JudgeSettings(), validate_default=True)
    labels: LabelSettings = LabelSettings()
    split: SplitSettings = SplitSettings()
    triplets: TripletSettings = TripletSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    adapt: AdaptSettings = AdaptSettings()
    distill: DistillSettings = DistillSettings()
    dual: DualSettings = DualSettings()
    reranker: RerankerSettings = RerankerSettings()
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
    term_weighting: Annotated[TermWeightingSettings, OfKind(TERM_WEIGHTINGS, TermWeightingSettings)] = Field(
        TermWeightingSettings(), validate_default=True
    )
    associate: AssociateSettings = AssociateSettings()
    mining: MiningSettings = MiningSettings()
    review: ReviewSettings = ReviewSettings()
    validation: ValidationSettings = ValidationSettings()
    card: CardSettings = CardSettings()
    runner: RunnerSettings = RunnerSettings()

    @model_validator(mode="after")
    def _human_labels_exist_for_overrides(self) -> Self:
        if self.labels.human_overrides and self.judge.human_labels is None:
            raise ValueError("labels.human_overrides needs judge.human_labels, a CSV of human labels")
        return self
