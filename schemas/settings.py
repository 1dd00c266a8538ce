"""Every setting, its default and its bounds. Where a default is a paper's, the description says so."""

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from schemas.address import holds_secret, host_and_path
from schemas.mining import (
    AssociateSettings,
    ClickSettings,
    LogSettings,
    MiningSettings,
    PlannerSettings,
    RelevanceSettings,
)
from schemas.section import Section, Share


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
    max_row_bytes: int = Field(16_000_000, gt=0, description="a longer line, row or file is rejected, not read")
    max_reject_share: Share = Field(
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
    language: str | None = Field("en", description="keep this language, ISO 639 code; null keeps all")
    language_score: Share = Field(0.5, description="another language counts only from this probability on")
    deduplicate: bool = Field(True, description="keep one of the queries that differ in case and white space only")
    clusters: Literal["auto"] | Annotated[int, Field(gt=0)] = Field(
        "auto", description="k-means clusters per tenant; auto: 10·√n, at most n"
    )
    per_cluster: int = Field(1, ge=0, description="queries kept per cluster, nearest its centre; 0 keeps all")

    @model_validator(mode="after")
    def _percentiles_rise(self) -> Self:
        if self.min_percentile >= self.max_percentile:
            raise ValueError(f"min_percentile {self.min_percentile} must be below max_percentile {self.max_percentile}")
        return self


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


class SentenceTransformersEncoder(Section):
    """A sentence-transformers model on this machine's GPU or CPU."""

    kind: Literal["sentence_transformers"] = Field(description="a model that runs here")
    model: str = Field(min_length=1, description="name on the model hub, or a local folder")
    revision: str | None = Field(None, description="commit or tag on the hub; null: what is in the local cache")
    query_prompt: str = Field("", description="text put before every query")
    document_prompt: str = Field("", description="text put before every chunk")
    max_tokens: int | None = Field(None, gt=0, description="longer texts are cut; null: the model's own limit")
    dimensions: int | None = Field(None, gt=0, description="keep the first so many (Matryoshka models); null: all")
    dtype: Literal["float32", "float16", "bfloat16"] = Field("float32", description="precision of the model")
    device: str = Field("auto", description="auto (every GPU, else the CPU), cpu, cuda or cuda:N")
    batch_size: int = Field(32, gt=0, description="texts per forward pass")


class OpenAIEncoder(Section):
    """An OpenAI-compatible embeddings endpoint; the key comes from the environment."""

    kind: Literal["openai"] = Field(description="a model behind an endpoint")
    model: str = Field(min_length=1, description="the model's name at the endpoint")
    base_url: str = Field("https://api.openai.com/v1", description="without user name, password or key")
    key_env: str = Field("OPENAI_API_KEY", description="environment variable with the key; empty: none is sent")
    dimensions: int | None = Field(None, gt=0, description="asked of the endpoint; null: the model's own")
    query_prompt: str = Field("", description="text put before every query")
    document_prompt: str = Field("", description="text put before every chunk")
    query_parameters: dict[str, JsonValue] = Field({}, description="sent with queries, such as input_type")
    document_parameters: dict[str, JsonValue] = Field({}, description="sent with chunks, such as input_type")
    max_tokens: int = Field(8192, gt=0, description="longer texts are cut to it (by a careful estimate)")
    batch_texts: int = Field(256, gt=0, description="most texts per request")
    batch_tokens: int = Field(100_000, gt=0, description="most tokens per request (estimated)")
    in_flight: int = Field(8, gt=0, description="most requests under way at once")
    requests_per_minute: int | None = Field(None, gt=0, description="rate limit; null: none")
    timeout: float = Field(60, gt=0, description="seconds until a request counts as failed")
    give_up_after: float = Field(600, gt=0, description="seconds of failing until the run stops")
    price_per_million: float = Field(0, ge=0, description="price of a million tokens, for the cost shown")
    spending_limit: float | None = Field(None, ge=0, description="stop before this is exceeded; null: no limit")


EncoderSettings = Annotated[SentenceTransformersEncoder | OpenAIEncoder, Field(discriminator="kind")]


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

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: the GPU where there is one")
    memory_mb: int = Field(1024, gt=0, description="most host memory for vectors and scores")
    gpu_memory_mb: int = Field(8192, gt=0, description="most GPU memory for vectors and scores")
    index: Literal["exact", "hnsw", "ivf"] = Field("exact", description="hnsw and ivf are approximate (faiss)")


class CacheSettings(Section):
    """Where vectors are kept across runs."""

    root: str | None = Field(None, description="folder or s3:// prefix of the embedding cache; null: the user's cache")
    dtype: Literal["float32", "float16"] = Field("float32", description="how vectors are kept")


class MemberSettings(Section):
    """One judge, and what it may cost."""

    kind: Literal["llm", "cross_encoder", "embedded"] = Field(
        "embedded", description="a language model, a cross-encoder, or embedded: a label-free scorer, weak, and no LLM"
    )
    threshold: Share | Literal["fitted"] = Field(
        0.5, description="relevant from this probability on; fitted: from the one that agrees best with judge.human"
    )
    model: str = Field("", description="llm: its name at the server; cross_encoder: name on the hub, or a local folder")
    revision: str | None = Field(
        None, description="of the model: commit or tag on the hub; llm: your name for the served weights"
    )
    base_url: tuple[str, ...] = Field(
        (), description="OpenAI-compatible server; several (a list, or with commas) are replicas of one model"
    )
    key_env: str = Field("", description="environment variable with the server's key; empty: none is sent")
    prompt: str = Field("binary", description="binary, graded, or a folder like those of prompts/judge")
    mode: Literal["auto", "choice", "json", "text"] = Field(
        "auto", description="how labels are asked for; auto: the first that the server obeys"
    )
    rationale: bool = Field(False, description="ask for a reason before the label: JSON, and many more tokens")
    parameters: dict[str, JsonValue] = Field(
        {}, description="sent with every call, such as chat_template_kwargs; null takes one of ours out"
    )
    max_chunk_tokens: int = Field(2048, gt=0, description="longer chunks are cut to it (by a careful estimate)")
    attempts: int = Field(3, gt=0, description="replies asked for until one can be read")
    max_in_flight: int = Field(256, gt=0, description="most calls under way at once; fewer where the server wants it")
    timeout: float = Field(120, gt=0, description="seconds until a call counts as failed")
    give_up_after: float = Field(600, gt=0, description="seconds of failing until the run stops")
    prompt_price_per_million: float = Field(0, ge=0, description="price of a million prompt tokens, for cost and limit")
    completion_price_per_million: float = Field(0, ge=0, description="price of a million completion tokens")
    spending_limit: float | None = Field(None, ge=0, description="stop before this is exceeded; null: no limit")
    token_limit: int | None = Field(None, ge=0, description="stop before more tokens are used; null: no limit")
    device: str = Field("auto", description="cross_encoder: auto (every GPU, else the CPU), cpu, cuda or cuda:N")
    batch_size: int = Field(32, gt=0, description="cross_encoder: pairs per forward pass")
    max_tokens: int | None = Field(None, gt=0, description="cross_encoder: longer pairs are cut; null: the model's own")

    @field_validator("base_url", mode="before")
    @classmethod
    def _split_at_commas(cls, given: object) -> object:
        return tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given

    @field_validator("base_url")
    @classmethod
    def _holds_no_secret(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if holds_secret(url):
                raise ValueError("must not hold a user name, password or query: name the key's variable in key_env")
            if host_and_path(url) is None:
                raise ValueError("must be addresses such as http://127.0.0.1:8000/v1")
        return urls

    @model_validator(mode="after")
    def _names_what_it_needs(self) -> Self:
        if self.kind != "embedded" and not self.model:
            raise ValueError(f"kind {self.kind} needs judge.model, the name of the model")
        if self.kind == "llm" and not self.base_url:
            raise ValueError("kind llm needs judge.base_url, such as http://127.0.0.1:8000/v1")
        if self.spending_limit is not None and not self.prompt_price_per_million + self.completion_price_per_million:
            raise ValueError("spending_limit needs a price per million tokens: without one nothing is ever spent")
        return self

    @property
    def cut(self) -> float:
        """The threshold as a number: 0.5 where it is yet to be fitted."""
        return 0.5 if self.threshold == "fitted" else self.threshold


class JudgeSettings(MemberSettings):
    """Who judges, alone or with others, and which human labels check it."""

    depth: Literal["full", "adaptive"] = Field(
        "full", description="full: every pair of the pool; adaptive: the likeliest first, until `recall` is reached"
    )
    recall: float = Field(0.9, gt=0, lt=1, description="adaptive: share of the pool's positives to find")
    random_share: float = Field(0.1, gt=0, lt=1, description="adaptive: most of the pool that is judged at random")
    human: str | None = Field(
        None, min_length=1, description="CSV of human labels: query_id, chunk_id, relevance, and tenant where needed"
    )
    panel: tuple[MemberSettings, ...] = Field(
        (),
        description="further judges of the same pairs: a list of sections like this one, without the last seven keys",
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

    test_share: Share = Field(0.25, description="share of queries held out as test (DevRev-Search: 92 of 383)")
    validation_share: Share = Field(0.1, description="share of the rest used for validation (ScalingNote: 9:1)")


class TripletSettings(Section):
    """How many negatives a triplet has, and how they are mined."""

    negatives: int = Field(16, gt=0, description="hard negatives per positive (DevRev-Search, A.4)")
    margin: Share = Field(0.05, description="a mined negative scores below s⁺ − |s⁺|·margin")


class AuditSettings(Section):
    """How the retrievers are measured."""

    bootstrap: int = Field(1000, gt=0, description="resamples of the queries for each interval")


class ReviewSettings(Section):
    """Which pairs people are asked about."""

    query_share: float = Field(0.1, gt=0, le=1, description="share of the queries (DevRev-Search, 3.3: 10 %)")
    pairs: int = Field(400, ge=0, description="most pairs of these queries, over all strata; 0: all of them")
    shared: Share = Field(0.2, description="share of them that every reviewer labels; any other one labels the rest")
    show_judge: bool = Field(False, description="show reviewers what the judge said: quicker, and no longer blind")


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
    encoders: dict[str, EncoderSettings] = Field({}, description="named encoders; pool.retrievers may name them")
    bm25: Bm25Settings = Bm25Settings()
    vectors: VectorSettings = VectorSettings()
    cache: CacheSettings = CacheSettings()
    pool: PoolSettings = PoolSettings()
    judge: JudgeSettings = JudgeSettings()
    labels: LabelSettings = LabelSettings()
    split: SplitSettings = SplitSettings()
    triplets: TripletSettings = TripletSettings()
    audit: AuditSettings = AuditSettings()
    logs: LogSettings = LogSettings()
    click: ClickSettings = ClickSettings()
    relevance: RelevanceSettings = RelevanceSettings()
    planner: PlannerSettings = PlannerSettings()
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
