"""Every table Darklode reads or writes: its Arrow schema, its key, and what each field means.

The names are the field's standard terms. A nullable field is null where the value is unknown, never 0 or "".
Every table that belongs to a tenant carries the tenant: ids are unique within a tenant only.
"""

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1

STRINGS = pa.list_(pa.string())


def _field(name: str, kind: pa.DataType, description: str, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"description": description})


@dataclass(frozen=True)
class Table:
    """A table's contract: `key` names the columns that identify a row (empty: rows have no identity)."""

    name: str
    key: tuple[str, ...]
    about: str
    schema: pa.Schema

    def empty(self) -> pa.Table:
        return self.schema.empty_table()

    def rows(self, columns: dict[str, object]) -> pa.Table:
        """Build rows from columns in any order; a nullable column that is left out is null.

        Raises:
            ValueError: a column that the table does not have, or a missing one that is not nullable.
        """
        unknown = columns.keys() - set(self.schema.names)
        missing = {f.name for f in self.schema if not f.nullable} - columns.keys()
        if unknown or missing:
            raise ValueError(f"{self.name}: unknown columns {sorted(unknown)}, missing columns {sorted(missing)}")
        length = len(next(iter(columns.values())))  # type: ignore[arg-type]
        arrays = [_as_array(columns.get(f.name), f.type, length) for f in self.schema]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def _as_array(values: object, kind: pa.DataType, length: int) -> pa.Array | pa.ChunkedArray:
    if values is None:
        return pa.nulls(length, kind)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values if values.type == kind else values.cast(kind)
    return pa.array(values, kind)


TENANT = _field("tenant", pa.string(), "who owns the row; tenants never meet")
QUERY_ID = _field("query_id", pa.string(), "the query, unique within its tenant")
CHUNK_ID = _field("chunk_id", pa.string(), "the chunk, unique within its tenant")

DOCUMENTS = Table(
    "documents",
    ("tenant", "doc_id"),
    "the documents as read",
    pa.schema(
        [
            TENANT,
            _field("doc_id", pa.string(), "the source's own id, or the path below the folder that was read"),
            _field("title", pa.string(), "title, where the source has one", null=True),
            _field("text", pa.string(), "the whole text; Markdown stays Markdown, HTML becomes Markdown"),
            _field("url", pa.string(), "public address, where the source has one", null=True),
            _field("source", pa.string(), "file the document was read from"),
            _field("content_hash", pa.string(), "SHA-256 of title and text, 32 hex digits"),
        ]
    ),
)

CHUNKS = Table(
    "chunks",
    ("tenant", "chunk_id"),
    "pieces of at most `chunk.size` characters: the unit that is retrieved and judged",
    pa.schema(
        [
            TENANT,
            _field("chunk_id", pa.string(), "doc_id#hash of the text: the same document and text keep their id"),
            _field("doc_id", pa.string(), "the document it was cut from"),
            _field("position", pa.int32(), "place among the document's chunks, from 0"),
            _field("start", pa.int32(), "first character, as an offset into documents.text"),
            _field("end", pa.int32(), "one past the last character: text = documents.text[start:end]"),
            _field("text", pa.string(), "the chunk's own characters"),
            _field("title", pa.string(), "the document's title", null=True),
            _field("heading", pa.string(), "headings above the chunk, outermost first, joined by ' › '", null=True),
            _field("content_hash", pa.string(), "SHA-256 of title, heading and text, 32 hex digits"),
        ]
    ),
)

RAW_QUERIES = Table(
    "raw_queries",
    ("tenant", "query_id"),
    "the query log as read",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            _field("text", pa.string(), "the query as it was typed"),
            _field("timestamp", pa.timestamp("us", tz="UTC"), "when it was asked", null=True),
            _field("count", pa.int64(), "how often the row stands for that text; 1 for a plain log"),
        ]
    ),
)

_CLEANED = [
    TENANT,
    QUERY_ID,
    _field("text", pa.string(), "the query, trimmed, personal data masked if so set"),
    _field("n_words", pa.int32(), "words: runs of characters between white space"),
    _field("language", pa.string(), "likeliest language, ISO 639 code (fastText lid.176)"),
    _field("language_score", pa.float32(), "its probability, 0 to 1"),
    _field("cluster_id", pa.int32(), "k-means cluster within the tenant"),
    _field("n_represented", pa.int64(), "raw queries it stands for, itself included"),
]

CLEANED_QUERIES = Table(
    "cleaned_queries",
    ("tenant", "query_id"),
    "the queries that passed cleaning, before they are split",
    pa.schema(_CLEANED),
)

QUERIES = Table(
    "queries",
    ("tenant", "query_id"),
    "the benchmark's queries",
    pa.schema([*_CLEANED, _field("split", pa.string(), "train, validation or test")]),
)

REJECTS = Table(
    "rejects",
    (),
    "every row that a stage dropped or could not read, with the reason",
    pa.schema(
        [
            _field("table", pa.string(), "the table the row would have belonged to"),
            _field("tenant", pa.string(), "its tenant, where known", null=True),
            _field("id", pa.string(), "its id, where known", null=True),
            _field("stage", pa.string(), "who dropped it, such as clean.language"),
            _field("reason", pa.string(), "why, in one phrase"),
            _field("file", pa.string(), "file it came from", null=True),
            _field("line", pa.int64(), "line of that file, from 1 (row, in files without lines)", null=True),
            _field("represented_by", pa.string(), "id of the kept row that stands for it", null=True),
            _field("payload", pa.string(), "the row itself or its beginning", null=True),
        ]
    ),
)

RANKINGS = Table(
    "rankings",
    ("tenant", "query_id", "retriever", "rank"),
    "each retriever's list, `pool.search_depth` deep",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            _field("retriever", pa.string(), "the retriever's name"),
            _field("rank", pa.int32(), "place in the retriever's list, from 1"),
            CHUNK_ID,
            _field("score", pa.float32(), "the retriever's own score, higher is better"),
        ]
    ),
)

POOL = Table(
    "pool",
    ("tenant", "query_id", "chunk_id"),
    "the candidates to judge: the union of each retriever's top `pool.depth`, or the best by fused rank",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            _field("retrievers", STRINGS, "retrievers that found it within the pool's depth, by name"),
            _field("best_rank", pa.int32(), "best rank in any list, from 1"),
            _field("fused_score", pa.float32(), "reciprocal-rank fusion over the full lists (k = 60)"),
        ]
    ),
)

VERDICTS = Table(
    "verdicts",
    ("tenant", "query_id", "chunk_id", "judge_id"),
    "what the judge said of each pair",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            _field("judge_id", pa.string(), "model, revision, prompt and settings: all that can change a verdict"),
            _field("relevant", pa.bool_(), "the label; null where the reply could not be read", null=True),
            _field("probability", pa.float32(), "of being relevant, 0 to 1", null=True),
            _field("grade", pa.int32(), "graded relevance, where the judge gives one", null=True),
            _field("expected_grade", pa.float32(), "mean of the grades, weighted by their probabilities", null=True),
            _field("rationale", pa.string(), "the judge's reason, where one was asked for", null=True),
            _field("truncated", pa.bool_(), "whether the chunk was cut to fit the judge's input", null=True),
            _field("raw_reply", pa.string(), "the judge's own words", null=True),
            _field("prompt_tokens", pa.int32(), "tokens sent", null=True),
            _field("cached_tokens", pa.int32(), "those of them that the server had in its prefix cache", null=True),
            _field("completion_tokens", pa.int32(), "tokens received", null=True),
            _field("attempts", pa.int32(), "how often the judge replied, readably or not", null=True),
            _field("error", pa.string(), "why there is no label", null=True),
        ]
    ),
)

PANEL_VERDICTS = Table(
    "panel_verdicts",
    VERDICTS.key,
    "what each judge of a panel said of each pair; `verdicts` holds what they came to; empty without a panel",
    VERDICTS.schema,
)

_FITTED = "null where the labels are too few"

HUMAN_LABELS = Table(
    "human_labels",
    ("tenant", "query_id", "chunk_id"),
    "the human labels of `judge.human` that name a pair of the pool",
    pa.schema([TENANT, QUERY_ID, CHUNK_ID, _field("relevance", pa.int32(), "0 = not relevant, 1 and more = relevant")]),
)

CALIBRATION = Table(
    "calibration",
    ("tenant",),
    "the judge against human labels",
    pa.schema(
        [
            TENANT,
            _field("judge_id", pa.string(), "who gave the labels and probabilities, before a threshold was fitted"),
            _field("labels", pa.int64(), "pairs that people labelled"),
            _field("unreadable", pa.int64(), "those of them without a verdict"),
            _field("threshold", pa.float64(), "the threshold that the counts and kappa are for", null=True),
            _field("true_positives", pa.int64(), "relevant to both"),
            _field("false_positives", pa.int64(), "relevant to the judge alone"),
            _field("false_negatives", pa.int64(), "relevant to people alone"),
            _field("true_negatives", pa.int64(), "relevant to neither"),
            _field("kappa", pa.float64(), "Cohen's kappa of these counts; null where chance alone agrees", null=True),
            _field("probabilities", pa.int64(), "labelled pairs with a probability: what the rest is computed from"),
            _field("ece", pa.float64(), f"expected calibration error, 0 to 1; {_FITTED}", null=True),
            _field(
                "fitted_threshold",
                pa.float64(),
                f"the threshold of the highest kappa; {_FITTED}, or none beats chance",
                null=True,
            ),
            _field("fitted_kappa", pa.float64(), "that kappa, on the labels it was fitted on", null=True),
            _field(
                "cross_validated_kappa",
                pa.float64(),
                "kappa where each query's threshold is fitted on others",
                null=True,
            ),
        ]
    ),
)

RELIABILITY = Table(
    "reliability",
    ("tenant", "bin"),
    "how often pairs of like probability are relevant to people: bins of equal size, none where labels are too few",
    pa.schema(
        [
            TENANT,
            _field("bin", pa.int32(), "place of the bin by probability, from 0; equal probabilities share a bin"),
            _field("labels", pa.int64(), "labelled pairs in it"),
            _field("lowest", pa.float64(), "lowest probability in it"),
            _field("highest", pa.float64(), "highest probability in it"),
            _field("mean_probability", pa.float64(), "what the judge said"),
            _field("relevant_share", pa.float64(), "what people said: share of relevant pairs"),
            _field("share_low", pa.float64(), "lower end of its 95 % Wilson interval"),
            _field("share_high", pa.float64(), "upper end of the same"),
        ]
    ),
)

QRELS = Table(
    "qrels",
    ("tenant", "query_id", "chunk_id"),
    "relevance judgments in the sense of TREC; unjudged and unreadable pairs have none",
    pa.schema([TENANT, QUERY_ID, CHUNK_ID, _field("relevance", pa.int32(), "0 = not relevant, 1 and more = relevant")]),
)

UNJUDGED = Table(
    "unjudged",
    ("tenant", "query_id", "chunk_id"),
    "pairs of the pool that adaptive judging left out: neither positives nor negatives",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            _field("probability", pa.float32(), "of being relevant, as the learner last expected", null=True),
        ]
    ),
)

STOPPING = Table(
    "stopping",
    ("tenant",),
    "where adaptive judging stopped, and what it is estimated to have missed",
    pa.schema(
        [
            TENANT,
            _field("pairs", pa.int64(), "pairs of the pool"),
            _field("judged", pa.int64(), "pairs that were judged, the random ones included"),
            _field("positives", pa.int64(), "positives found, the random ones included"),
            _field("random", pa.int64(), "pairs drawn at random from the whole pool and judged"),
            _field("random_positives", pa.int64(), "positives among them"),
            _field("random_reached", pa.int64(), "those that would have been judged without the draw, too"),
            _field("recall", pa.float64(), "share of the pool's positives that was asked for"),
            _field("missed_share", pa.float64(), "estimated share of the pool's positives that nobody judged"),
            _field("missed_low", pa.float64(), "lower end of its 95 % interval (Clopper & Pearson)"),
            _field("missed_high", pa.float64(), "upper end"),
        ]
    ),
)

IMPRESSIONS = Table(
    "impressions",
    ("tenant", "event_id"),
    "one row per document shown for a search",
    pa.schema(
        [
            TENANT,
            _field("event_id", pa.string(), "the impression"),
            _field("session_id", pa.string(), "the user's session", null=True),
            _field("timestamp", pa.timestamp("us", tz="UTC"), "when it was shown"),
            _field("query", pa.string(), "what was searched"),
            _field("doc_id", pa.string(), "what was shown"),
            _field("position", pa.int32(), "place in the list, from 1"),
            _field("clicked", pa.bool_(), "whether it was clicked"),
        ]
    ),
)

QUERY_TERMS = Table(
    "query_terms",
    ("tenant", "query_id", "term"),
    "how much each term matters to its query",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            _field("term", pa.string(), "a term of the query"),
            _field("importance", pa.float32(), "0 to 1"),
        ]
    ),
)

ASSOCIATIONS = Table(
    "associations",
    ("tenant", "query_id", "associated_query_id", "kind"),
    "queries whose evidence serves one another (ScalingNote, Algorithm 1)",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            _field("associated_query_id", pa.string(), "the query whose evidence is lent"),
            _field("kind", pa.string(), "click (directed) or relevance (mutual)"),
            _field("terms", STRINGS, "the terms that matched"),
        ]
    ),
)

TRIPLETS = Table(
    "triplets",
    ("tenant", "triplet_id"),
    "one row per query and positive, with its hard negatives",
    pa.schema(
        [
            _field("triplet_id", pa.string(), "hash of tenant, query, positive and source"),
            TENANT,
            QUERY_ID,
            _field("query", pa.string(), "the query's text"),
            _field("positive_id", pa.string(), "chunk_id of the positive"),
            _field("positive", pa.string(), "its text"),
            _field("negative_ids", STRINGS, "chunk_ids of the hard negatives, hardest first"),
            _field("negatives", STRINGS, "their texts, in the same order"),
            _field("positive_score", pa.float32(), "fused retrieval score of the positive", null=True),
            _field("negative_scores", pa.list_(pa.float32()), "the same of each negative"),
            _field(
                "source",
                pa.string(),
                "pooled, click_one_hop, click_multi_hop, relevance_one_hop or relevance_multi_hop",
            ),
            _field("via_query_id", pa.string(), "the query whose evidence was lent", null=True),
            _field("split", pa.string(), "train or validation; test labels never become triplets"),
        ]
    ),
)

FUNNEL = Table(
    "funnel",
    ("position", "reason"),
    "what came into each step, what left it, and why the rest did not",
    pa.schema(
        [
            _field("position", pa.int32(), "order of the steps, from 0"),
            _field("step", pa.string(), "stage or part of a stage, such as clean.language"),
            _field("unit_in", pa.string(), "what is counted on the way in"),
            _field("rows_in", pa.int64(), "how many came in"),
            _field("unit_out", pa.string(), "what is counted on the way out"),
            _field("rows_out", pa.int64(), "how many left"),
            _field("reason", pa.string(), "why some were dropped; null if none were", null=True),
            _field("dropped", pa.int64(), "how many were dropped for that reason"),
        ]
    ),
)

_INTERVAL = "95 % bootstrap interval over queries"

AUDIT_RETRIEVERS = Table(
    "audit_retrievers",
    ("tenant", "retriever"),
    "what each retriever finds of the positives, and what is lost without it",
    pa.schema(
        [
            _field("tenant", pa.string(), "null: all tenants together", null=True),
            _field("retriever", pa.string(), "the retriever left out, or measured alone"),
            _field("recall", pa.float64(), "mean over queries of its share of the positives, at search depth"),
            _field("recall_low", pa.float64(), f"lower end, {_INTERVAL}"),
            _field("recall_high", pa.float64(), f"upper end, {_INTERVAL}"),
            _field("recall_at_depth", pa.float64(), "the same at the pool's depth"),
            _field("leave_one_out", pa.float64(), "recall of the pool of all the others, at the pool's depth"),
            _field("leave_one_out_low", pa.float64(), f"lower end, {_INTERVAL}"),
            _field("leave_one_out_high", pa.float64(), f"upper end, {_INTERVAL}"),
            _field("unique_positives", pa.int64(), "positives that no other retriever found at the pool's depth"),
            _field("positives", pa.int64(), "positives of all queries counted here"),
            _field("queries", pa.int64(), "queries with at least one positive"),
        ]
    ),
)

AUDIT_OVERLAP = Table(
    "audit_overlap",
    ("retriever", "other"),
    "how far two retrievers find the same positives, at the pool's depth",
    pa.schema(
        [
            _field("retriever", pa.string(), "one retriever"),
            _field("other", pa.string(), "another, or the same"),
            _field("shared", pa.int64(), "positives that both found"),
            _field("found", pa.int64(), "positives that the first found"),
            _field("jaccard", pa.float64(), "shared ÷ found by either; null if neither found any", null=True),
        ]
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        DOCUMENTS,
        CHUNKS,
        RAW_QUERIES,
        CLEANED_QUERIES,
        QUERIES,
        REJECTS,
        RANKINGS,
        POOL,
        VERDICTS,
        PANEL_VERDICTS,
        QRELS,
        UNJUDGED,
        STOPPING,
        HUMAN_LABELS,
        CALIBRATION,
        RELIABILITY,
        IMPRESSIONS,
        QUERY_TERMS,
        ASSOCIATIONS,
        TRIPLETS,
        FUNNEL,
        AUDIT_RETRIEVERS,
        AUDIT_OVERLAP,
    )
}
