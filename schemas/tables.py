"""Every table Darklode reads or writes: its Arrow schema, its key, and what each field means.

The names are the field's standard terms. A nullable field is null where the value is unknown, never 0 or "".
Every table that belongs to a tenant carries the tenant: ids are unique within a tenant only.
"""

import pyarrow as pa

from darklode.schemas.day_tables import DAY_TABLES
from darklode.schemas.evaluation_tables import EVALUATION_TABLES
from darklode.schemas.generation_tables import GENERATION_TABLES
from darklode.schemas.law_tables import TRAINING_TABLES
from darklode.schemas.mined_tables import MINED_TABLES
from darklode.schemas.review_tables import CALIBRATION, HUMAN_LABELS, RELIABILITY, REVIEW_TABLES
from darklode.schemas.serving_tables import SERVING_TABLES
from darklode.schemas.table import CHUNK_ID, QUERY_ID, STRINGS, TENANT, Table, column

DOCUMENTS = Table(
    "documents",
    ("tenant", "doc_id"),
    "the documents as read",
    pa.schema(
        [
            TENANT,
            column("doc_id", pa.string(), "the source's own id, or the path below the folder that was read"),
            column("title", pa.string(), "title, where the source has one", null=True),
            column("topic", pa.string(), "what it is about, where the source says so", null=True),
            column("text", pa.string(), "the whole text; Markdown stays Markdown, HTML becomes Markdown"),
            column("url", pa.string(), "public address, where the source has one", null=True),
            column("source", pa.string(), "file the document was read from"),
            column("content_hash", pa.string(), "SHA-256 of title and text, 32 hex digits"),
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
            column("chunk_id", pa.string(), "doc_id#hash of the text: the same document and text keep their id"),
            column("doc_id", pa.string(), "the document it was cut from"),
            column("position", pa.int32(), "place among the document's chunks, from 0"),
            column("start", pa.int32(), "first character, as an offset into documents.text"),
            column("end", pa.int32(), "one past the last character: text = documents.text[start:end]"),
            column("text", pa.string(), "the chunk's own characters"),
            column("title", pa.string(), "the document's title", null=True),
            column("heading", pa.string(), "headings above the chunk, outermost first, joined by ' › '", null=True),
            column("content_hash", pa.string(), "SHA-256 of title, heading and text, 32 hex digits"),
        ]
    ),
)

TEST_TEXTS = Table(
    "test_texts",
    CHUNKS.key,
    "what a mined run's test queries search: the documents of `mined_test_pool`, a row each; empty for a build",
    CHUNKS.schema,
)

MANUAL_TEXTS = Table(
    "manual_texts", CHUNKS.key, "the documents of `manual_labels`, a row each, under their text_id", CHUNKS.schema
)

RAW_QUERIES = Table(
    "raw_queries",
    ("tenant", "query_id"),
    "the query log as read",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("text", pa.string(), "the query as it was typed"),
            column("timestamp", pa.timestamp("us", tz="UTC"), "when it was asked", null=True),
            column("count", pa.int64(), "how often the row stands for that text; 1 for a plain log"),
        ]
    ),
)

_CLEANED = [
    TENANT,
    QUERY_ID,
    column("text", pa.string(), "the query, trimmed, personal data masked if so set"),
    column("n_words", pa.int32(), "words: between white space, and in scripts without spaces by ICU's dictionaries"),
    column("language", pa.string(), "likeliest language, ISO 639 code (fastText lid.176)"),
    column("language_score", pa.float32(), "its probability, 0 to 1"),
    column("cluster_id", pa.int32(), "k-means cluster within the tenant"),
    column("n_represented", pa.int64(), "raw queries it stands for: itself, its duplicates, those in the same words"),
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
    pa.schema([*_CLEANED, column("split", pa.string(), "train, validation or test")]),
)

REJECTS = Table(
    "rejects",
    (),
    "every row that a stage dropped or could not read, with the reason",
    pa.schema(
        [
            column("table", pa.string(), "the table the row would have belonged to"),
            column("tenant", pa.string(), "its tenant, where known", null=True),
            column("id", pa.string(), "its id, where known", null=True),
            column("stage", pa.string(), "who dropped it, such as clean.language"),
            column("reason", pa.string(), "why, in one phrase"),
            column("file", pa.string(), "file it came from", null=True),
            column("line", pa.int64(), "line of that file, from 1 (row, in files without lines)", null=True),
            column("represented_by", pa.string(), "id of the kept row that stands for it", null=True),
            column("payload", pa.string(), "the row itself or its beginning", null=True),
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
            column("retriever", pa.string(), "the retriever's name"),
            column("rank", pa.int32(), "place in the retriever's list, from 1"),
            CHUNK_ID,
            column("score", pa.float32(), "the retriever's own score, higher is better"),
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
            column("retrievers", STRINGS, "retrievers that found it within the pool's depth, by name"),
            column("best_rank", pa.int32(), "best rank in any list, from 1"),
            column("fused_score", pa.float32(), "reciprocal-rank fusion over the full lists (k = 60)"),
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
            column("judge_id", pa.string(), "model, revision, prompt and settings: all that can change a verdict"),
            column("relevant", pa.bool_(), "the label; null where the reply could not be read", null=True),
            column("probability", pa.float32(), "of being relevant, 0 to 1", null=True),
            column("no_probability", pa.string(), "why a label has no probability, where the judge says so", null=True),
            column(
                "contradicted",
                pa.bool_(),
                "whether the reply's log-probabilities favour another label than the one it wrote, which stands "
                "without a probability; null where they do not tell",
                null=True,
            ),
            column("grade", pa.int32(), "graded relevance, where the judge gives one", null=True),
            column("expected_grade", pa.float32(), "mean of the grades, weighted by their probabilities", null=True),
            column("rationale", pa.string(), "the judge's reason, where one was asked for", null=True),
            column("truncated", pa.bool_(), "whether the chunk was cut to fit the judge's input", null=True),
            column("raw_reply", pa.string(), "the judge's own words", null=True),
            column("prompt_tokens", pa.int32(), "tokens sent", null=True),
            column("cached_tokens", pa.int32(), "those of them that the server had in its prefix cache", null=True),
            column("completion_tokens", pa.int32(), "tokens received", null=True),
            column("attempts", pa.int32(), "how often the judge replied, readably or not", null=True),
            column("error", pa.string(), "why there is no label", null=True),
        ]
    ),
)

PANEL_VERDICTS = Table(
    "panel_verdicts",
    VERDICTS.key,
    "what each judge of a panel said of each pair; `verdicts` holds what they came to; empty without a panel",
    VERDICTS.schema,
)

QRELS = Table(
    "qrels",
    ("tenant", "query_id", "chunk_id"),
    "relevance judgments in the sense of TREC; unjudged and unreadable pairs have none",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("relevance", pa.int32(), "0 = not relevant, 1 and more = relevant"),
            column("source", pa.string(), "whose label it is: judge, or human where `labels.human_overrides` says so"),
        ]
    ),
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
            column("probability", pa.float32(), "of being relevant, as the learner last expected", null=True),
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
            column("pairs", pa.int64(), "pairs of the pool"),
            column("judged", pa.int64(), "pairs that were judged, the random ones included"),
            column("positives", pa.int64(), "positives found, the random ones included"),
            column("random", pa.int64(), "pairs drawn at random from the whole pool and judged"),
            column("random_positives", pa.int64(), "positives among them"),
            column("random_reached", pa.int64(), "those that would have been judged without the draw, too"),
            column("recall", pa.float64(), "share of the pool's positives that was asked for"),
            column("missed_share", pa.float64(), "estimated share of the pool's positives that nobody judged"),
            column("missed_low", pa.float64(), "lower end of its 95 % interval (Clopper & Pearson)"),
            column("missed_high", pa.float64(), "upper end"),
            column("queries", pa.int64(), "queries of the pool"),
            column("queries_found", pa.int64(), "queries with at least one positive found"),
            column(
                "query_missed_share",
                pa.float64(),
                "estimated share of a query's positives that nobody judged, mean over the queries that have any",
            ),
            column("query_missed_low", pa.float64(), "lower end of its 95 % interval"),
            column("query_missed_high", pa.float64(), "upper end"),
        ]
    ),
)

TRIPLETS = Table(
    "triplets",
    ("tenant", "triplet_id"),
    "one row per query and positive, with its hard negatives",
    pa.schema(
        [
            column("triplet_id", pa.string(), "hash of tenant, query, positive and source"),
            TENANT,
            QUERY_ID,
            column("query", pa.string(), "the query's text"),
            column("positive_id", pa.string(), "chunk_id of the positive; doc_id where it was mined from a log"),
            column("positive", pa.string(), "its title, heading and text, one a line; or its text: triplets.text_form"),
            column("negative_ids", STRINGS, "the same of the hard negatives, hardest first"),
            column("negatives", STRINGS, "the same of these, in their order"),
            column(
                "positive_score",
                pa.float32(),
                "pooled: fused retrieval score; relevance: the ranker's; click: null",
                null=True,
            ),
            column("negative_scores", pa.list_(pa.float32()), "the same of each negative"),
            column(
                "source",
                pa.string(),
                "pooled, click_one_hop, click_multi_hop, relevance_one_hop or relevance_multi_hop",
            ),
            column("via_query_id", pa.string(), "the query whose evidence was lent", null=True),
            column("date", pa.date32(), "first day on which the log gave it; null where it is pooled", null=True),
            column("tier", pa.string(), "smallest of small, median and large that holds it; null: pooled", null=True),
            column("split", pa.string(), "train or validation; test labels never become triplets"),
        ]
    ),
    patched=True,
)

HELD_OUT = Table(
    "held_out",
    ("tenant", "query_id", "split"),
    "the queries held out of training that have a positive, and which of them share one with it",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("split", pa.string(), "validation or test"),
            column("shares_positive", pa.bool_(), "whether a positive of the query is one of a training triplet, too"),
        ]
    ),
)

FUNNEL = Table(
    "funnel",
    ("position", "reason"),
    "what came into each step, what left it, and why the rest did not",
    pa.schema(
        [
            column("position", pa.int32(), "order of the steps, from 0"),
            column("step", pa.string(), "stage or part of a stage, such as clean.language"),
            column("unit_in", pa.string(), "what is counted on the way in"),
            column("rows_in", pa.int64(), "how many came in"),
            column("unit_out", pa.string(), "what is counted on the way out"),
            column("rows_out", pa.int64(), "how many left"),
            column("reason", pa.string(), "why some were dropped; null if none were", null=True),
            column("dropped", pa.int64(), "how many were dropped for that reason"),
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
            column("tenant", pa.string(), "null: all tenants together", null=True),
            column("retriever", pa.string(), "the retriever left out, or measured alone"),
            column("recall", pa.float64(), "mean over queries of its share of the positives, at search depth"),
            column("recall_low", pa.float64(), f"lower end, {_INTERVAL}"),
            column("recall_high", pa.float64(), f"upper end, {_INTERVAL}"),
            column("recall_at_depth", pa.float64(), "the same at the pool's depth"),
            column("leave_one_out", pa.float64(), "recall of the pool of all the others, at the pool's depth"),
            column("leave_one_out_low", pa.float64(), f"lower end, {_INTERVAL}"),
            column("leave_one_out_high", pa.float64(), f"upper end, {_INTERVAL}"),
            column("unique_positives", pa.int64(), "positives that no other retriever found at the pool's depth"),
            column("positives", pa.int64(), "positives of all queries counted here"),
            column("queries", pa.int64(), "queries with at least one positive"),
        ]
    ),
)

AUDIT_OVERLAP = Table(
    "audit_overlap",
    ("retriever", "other"),
    "how far two retrievers find the same positives, at the pool's depth",
    pa.schema(
        [
            column("retriever", pa.string(), "one retriever"),
            column("other", pa.string(), "another, or the same"),
            column("shared", pa.int64(), "positives that both found"),
            column("found", pa.int64(), "positives that the first found"),
            column("jaccard", pa.float64(), "shared ÷ found by either; null if neither found any", null=True),
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
        *DAY_TABLES,
        *MINED_TABLES,
        *TRIPLETS.with_patch(),
        HELD_OUT,
        FUNNEL,
        AUDIT_RETRIEVERS,
        AUDIT_OVERLAP,
        TEST_TEXTS,
        MANUAL_TEXTS,
        *EVALUATION_TABLES,
        *TRAINING_TABLES,
        *SERVING_TABLES,
        *GENERATION_TABLES,
        *REVIEW_TABLES,
    )
}
