"""Every setting, its default and its bounds. Where a default is a paper's, the description says so.

What a judge, an encoder or a planner of one kind has beside the keys here is declared by that kind, in its own file.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.evaluation import AuditSettings, EvaluateSettings
from darklode.schemas.kinds import Group, KindSection, OfKind
from darklode.schemas.mining import (
    AdmissionSettings,
    AssociateSettings,
    ClickSettings,
    LogSettings,
    MiningSettings,
    PlannerSettings,
    RelevanceSettings,
)
from darklode.schemas.places import FilePath, FolderOrName
from darklode.schemas.section import Bound, NoRow, Section, Share

JUDGES = Group("judges", "darklode.pipeline.judge.kinds")
ENCODERS = Group("encoders", "darklode.pipeline.retrieve.encoders.kinds")
RETRIEVERS = Group("retrievers", "darklode.pipeline.retrieve.retrievers.kinds")
PLANNERS = Group("planners", "darklode.pipeline.mine.planners.kinds")


class DocumentColumns(Section):
    """Names of the source's columns (or front-matter keys, or HTML meta names)."""

    doc_id: str | None = Field(None, description="null: the first present of doc_id, _id, id, docid")
    title: str | None = Field(None, description="null: title")
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
        True, description="mask e-mail addresses, phone and card numbers, IP addresses and tokens"
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


class PoolSettings(Section):
    """Who searches, and which candidates are judged."""

    retrievers: tuple[str, ...] = Field((), description="their names, in order; empty: the preset's")
    depth: int = Field(60, gt=0, description="candidates from each retriever (DevRev-Search, 3.3)")
    search_depth: int = Field(420, gt=0, description="length of the lists kept for the audit (DevRev-Search, A.2)")
    rule: Literal["union", "fused"] = Field(
        "union", description="union of the top `depth`, or the best `budget` by reciprocal-rank fusion"
    )
    budget: int = Field(150, gt=0, description="candidates per query under the rule `fused`")

    @model_validator(mode="after")
    def _lists_reach_the_pool(self) -> Self:
        if self.depth > self.search_depth:
            raise ValueError(f"depth {self.depth} must not exceed search_depth {self.search_depth}")
        return self


class EncoderSettings(KindSection):
    """What turns texts into vectors; each kind has keys of its own."""

    kind: str = Field(description="how it is run; each kind has keys of its own")
    model: str = Field(min_length=1, description="the model's name")

    def price(self) -> float:
        """What a million tokens cost; 0 for a model of one's own."""
        return 0.0


class RetrieverSettings(KindSection):
    """Who finds chunks; each kind has keys of its own."""

    kind: str = Field(description="how it searches; each kind has keys of its own")


class LocalModel(Section):
    """A sentence-transformers model that runs on this machine."""

    model: FolderOrName[str] = Field(min_length=1, description="on the hub, a local folder, or package:NAME here")
    revision: str | None = Field(None, description="commit or tag on the hub; null: what is in the local cache")
    max_tokens: int | None = Field(None, gt=0, description="longer texts are cut; null: the model's own limit")
    dtype: Literal["float32", "float16", "bfloat16"] = Field("float32", description="precision of the model")
    device: NoRow[str] = Field("auto", description="auto (every GPU, else the CPU), cpu, cuda or cuda:N")
    batch_size: NoRow[int] = Field(32, gt=0, description="texts per forward pass")


class Bm25Settings(Section):
    """How BM25 reads and weighs words."""

    engine: Literal["bm25s", "rank_bm25"] = Field("bm25s", description="bm25s, or the much slower rank-bm25")
    method: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"] = Field("lucene", description="variant of BM25")
    k1: float = Field(1.5, ge=0, description="how soon repeated terms stop counting")
    b: float = Field(0.75, ge=0, le=1, description="how much long chunks are discounted")
    stemmer: str | None = Field("english", description="Snowball stemmer, such as german; null: none")
    stop_words: bool = Field(True, description="leave English stop words out")


class VectorSettings(Section):
    """Exact search over cached vectors."""

    device: NoRow[Literal["auto", "cpu", "cuda"]] = Field("auto", description="auto: the GPU where there is one")
    memory_mb: NoRow[int] = Field(1024, gt=0, description="most host memory for vectors and scores")
    gpu_memory_mb: NoRow[int] = Field(8192, gt=0, description="most GPU memory for vectors and scores")
    index: Literal["exact", "hnsw", "ivf"] = Field("exact", description="hnsw and ivf are approximate (faiss)")


class CacheSettings(Section):
    """Where vectors and verdicts are kept across runs."""

    root: NoRow[FilePath[str | None]] = Field(None, description="folder or s3:// prefix; null: the user's cache")
    dtype: Literal["float32", "float16"] = Field("float32", description="how vectors are kept")


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


class SplitSettings(Section):
    """How queries are split."""

    by: Literal["cluster", "cluster_and_positives"] = Field(
        "cluster",
        description="what stands on one side alone: near-duplicate queries; cluster_and_positives: positives, too",
    )
    test_share: Share = Field(0.25, description="share of queries held out as test (DevRev-Search: 92 of 383)")
    validation_share: Share = Field(0.1, description="share of the rest used for validation (ScalingNote: 9:1)")


class TripletSettings(Section):
    """Which positives are learned from, how many negatives each has, and how they are mined."""

    min_probability: Share = Field(
        0.6, description="a judge's positive is learned from at this probability on; one without any is, too"
    )
    max_positives: int = Field(5, ge=0, description="positives of a query that are learned from, best first; 0: all")
    same_document: bool = Field(
        False, description="chunks of a document that holds a positive of the query may be its negatives"
    )
    negatives: int = Field(16, gt=0, description="hard negatives per positive (DevRev-Search, A.4)")
    margin: Share = Field(0.05, description="a mined negative scores below s⁺ − |s⁺|·margin")


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
