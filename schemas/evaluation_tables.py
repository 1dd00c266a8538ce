"""Tables of the audit and of `evaluate-systems`, in data order: test queries and labels, rankings, measures."""

import pyarrow as pa

from darklode.schemas.table import QUERY_ID, TENANT, Table, column

SCOPE = column("tenant", pa.string(), "tenant; null: all tenants together", null=True)
SYSTEM = column("system", pa.string(), "retriever, encoder, or name of a run file")
TEXT_ID = column("text_id", pa.string(), "retrieved text: chunk_id of a build, doc_id of a mined run")
MEASURE = column("measure", pa.string(), "name in ir_measures, such as nDCG@10; AUC-SAT or AUC-REL for human labels")
PART = column(
    "part",
    pa.string(),
    "part of the queries: counted (basis of claims), all, unseen, variant or seen (in training), shared positive or "
    "own positive (whether training has one of its positives; counted queries only); labelled for AUC",
)
LOW, HIGH = (
    column(
        name, pa.float64(), f"{end} end, 95 % bootstrap interval over groups of queries; null for one group", null=True
    )
    for name, end in (("low", "lower"), ("high", "upper"))
)

TEST_QUERIES = Table(
    "test_queries",
    ("tenant", "query_id"),
    "test queries with a positive: of the test split or the later period",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("text", pa.string(), "text of the query"),
            column("group", pa.string(), "resampling unit: cluster of near-duplicates, or the query itself"),
            column("kind", pa.string(), "unseen, variant or seen in training; null if unknown", null=True),
            column(
                "shares_positive",
                pa.bool_(),
                "true if one of its positives is a training positive; null if unknown",
                null=True,
            ),
        ]
    ),
)

TEST_LABELS = Table(
    "test_labels",
    ("tenant", "query_id", "text_id"),
    "labels of the test queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            TEXT_ID,
            column("relevance", pa.int32(), "0 = judged not relevant, >= 1 = relevant; null: uncertain", null=True),
        ]
    ),
)

TEST_RANKINGS = Table(
    "test_rankings",
    ("tenant", "system", "query_id", "rank"),
    "ranking of each system for each test query, to the depth of the measures",
    pa.schema(
        [
            TENANT,
            SYSTEM,
            QUERY_ID,
            column("rank", pa.int32(), "rank in the system's list, from 1"),
            TEXT_ID,
            column("score", pa.float32(), "score of the system; higher is better"),
        ]
    ),
)

EVALUATION = Table(
    "evaluation",
    ("tenant", "system", "measure", "part"),
    "measures of each system, mean over queries",
    pa.schema(
        [
            SCOPE,
            SYSTEM,
            MEASURE,
            PART,
            column("value", pa.float64(), "mean over queries, 0 to 1; AUC: over all pairs"),
            LOW,
            HIGH,
            column("ceiling", pa.float64(), "value of an ideal ranking"),
            column("queries", pa.int64(), "number of queries"),
        ]
    ),
)

EVALUATION_QUERIES = Table(
    "evaluation_queries",
    ("tenant", "system", "query_id", "measure"),
    "measures of each system per test query",
    pa.schema([TENANT, SYSTEM, QUERY_ID, MEASURE, column("value", pa.float64(), "value, 0 to 1")]),
)

EVALUATION_PAIRS = Table(
    "evaluation_pairs",
    ("tenant", "system", "other", "measure", "part"),
    "paired comparison of systems on the same queries: first minus second",
    pa.schema(
        [
            SCOPE,
            SYSTEM,
            column("other", pa.string(), "second system"),
            MEASURE,
            PART,
            column("difference", pa.float64(), "mean over queries of first minus second"),
            column(
                "low",
                pa.float64(),
                "lower end, 95 % bootstrap-t interval over clusters; null for one cluster, and for few with AUC",
                null=True,
            ),
            column("high", pa.float64(), "upper end", null=True),
            column(
                "bounded_low",
                pa.float64(),
                "97.5 % lower bound that allows for a rare loss not seen in any cluster; null for AUC",
                null=True,
            ),
            column("p", pa.float64(), "two-sided p-value of a permutation test that swaps systems within clusters"),
            column(
                "p_holm",
                pa.float64(),
                "p-value with Holm correction over all pairs and measures of the tenant and part",
            ),
            column(
                "detectable",
                pa.float64(),
                "smallest true difference detected with power .8; null for one group and for AUC",
                null=True,
            ),
            column("wins", pa.int64(), "queries where the first is better; null for AUC", null=True),
            column("losses", pa.int64(), "queries where the first is worse; null for AUC", null=True),
            column("queries", pa.int64(), "number of queries"),
            column(
                "clusters",
                pa.int64(),
                "clusters of near-duplicates among them; for AUC: queries with a label of the rarer class",
            ),
        ]
    ),
)

MANUAL_LABELS = Table(
    "manual_labels",
    ("tenant", "query_id", "text_id"),
    "human labels of query-document pairs (Manual test dataset of ScalingNote, 4.1.2)",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("query", pa.string(), "text of the query"),
            column("text_id", pa.string(), "doc_id; `text-` and a hash for a text that is not in the run"),
            column("text", pa.string(), "text, if it is not in the run", null=True),
            column("satisfaction", pa.bool_(), "true if satisfying; null if not labelled", null=True),
            column("relevance", pa.bool_(), "true if relevant; null if not labelled", null=True),
        ]
    ),
)

MANUAL_SCORES = Table(
    "manual_scores",
    ("tenant", "system", "query_id", "text_id"),
    "score of each system for the pairs of `manual_labels`",
    pa.schema(
        [
            TENANT,
            SYSTEM,
            QUERY_ID,
            TEXT_ID,
            column("score", pa.float32(), "score of the system; null: no match, ranked last", null=True),
        ]
    ),
)

ONLINE_VERDICTS = Table(
    "online_verdicts",
    ("tenant", "date", "search_id", "query_id", "doc_id"),
    "verdicts on the top 20 results of a sample of the log's searches (evaluate.judged_searches)",
    pa.schema(
        [
            TENANT,
            column("date", pa.date32(), "day of the search, UTC"),
            column("variant", pa.string(), "A/B variant that served the search; null for none or several", null=True),
            column("search_id", pa.string(), "search id"),
            column("session", pa.string(), "session id, or the search id without a session"),
            QUERY_ID,
            column("query", pa.string(), "judged query text: one of the sampled spellings"),
            column("doc_id", pa.string(), "document shown"),
            column("position", pa.int32(), "rank in the result list, from 1"),
            column(
                "relevant",
                pa.bool_(),
                "true if a chunk is judged relevant; null if the document was deleted or replies could not be parsed",
                null=True,
            ),
            column("probability", pa.float32(), "probability of its best chunk, 0 to 1", null=True),
            column(
                "judge_id",
                pa.string(),
                "id of everything that can change a verdict: model, revision, prompt, settings; a cascade's own, "
                "because a document's label may combine replies of both of its judges",
            ),
        ]
    ),
)

ONLINE = Table(
    "online",
    ("tenant", "variant", "measure"),
    "online metrics of the log, per A/B variant and overall (ScalingNote, 4.6)",
    pa.schema(
        [
            SCOPE,
            column("variant", pa.string(), "A/B variant; null: the whole log", null=True),
            column("measure", pa.string(), "metric, such as abandoned searches (docs/guides/evaluate.md)"),
            column("value", pa.float64(), "share, 0 to 1"),
            column("low", pa.float64(), "lower end, 95 % bootstrap interval over sessions"),
            column("high", pa.float64(), "upper end"),
            column("counted", pa.int64(), "denominator: documents shown or judged, searches, or sessions"),
            column("sessions", pa.int64(), "number of sessions"),
        ]
    ),
)

ONLINE_PAIRS = Table(
    "online_pairs",
    ("tenant", "variant", "other", "measure"),
    "paired comparison of A/B variants: first minus second",
    pa.schema(
        [
            SCOPE,
            column("variant", pa.string(), "first variant"),
            column("other", pa.string(), "second variant"),
            column("measure", pa.string(), "as in `online`"),
            column("difference", pa.float64(), "share of the first minus share of the second"),
            column(
                "low",
                pa.float64(),
                "lower end, 95 % bootstrap-t interval over sessions; null if a variant has few sessions or no variance",
                null=True,
            ),
            column("high", pa.float64(), "upper end", null=True),
            column("p", pa.float64(), "two-sided p-value of a permutation test over sessions"),
            column("p_holm", pa.float64(), "p-value with Holm correction over all pairs and metrics of the tenant"),
        ]
    ),
)

_INTERVAL = "95 % bootstrap interval over queries"

AUDIT_RETRIEVERS = Table(
    "audit_retrievers",
    ("tenant", "retriever"),
    "recall of each retriever, and of the pool without it",
    pa.schema(
        [
            column("tenant", pa.string(), "tenant; null: all tenants together", null=True),
            column("retriever", pa.string(), "retriever measured alone and left out of the pool"),
            column("recall", pa.float64(), "recall of the retriever at search depth, mean over queries"),
            column("recall_low", pa.float64(), f"lower end, {_INTERVAL}"),
            column("recall_high", pa.float64(), f"upper end, {_INTERVAL}"),
            column("recall_at_depth", pa.float64(), "recall of the retriever at pool depth"),
            column("leave_one_out", pa.float64(), "recall of the pool of all other retrievers, at pool depth"),
            column("leave_one_out_low", pa.float64(), f"lower end, {_INTERVAL}"),
            column("leave_one_out_high", pa.float64(), f"upper end, {_INTERVAL}"),
            column("unique_positives", pa.int64(), "positives that no other retriever found at pool depth"),
            column("positives", pa.int64(), "positives of these queries"),
            column("queries", pa.int64(), "queries with at least one positive"),
        ]
    ),
)

AUDIT_OVERLAP = Table(
    "audit_overlap",
    ("retriever", "other"),
    "overlap of the positives found by two retrievers at pool depth",
    pa.schema(
        [
            column("retriever", pa.string(), "first retriever"),
            column("other", pa.string(), "second retriever, may be the first"),
            column("shared", pa.int64(), "positives found by both"),
            column("found", pa.int64(), "positives found by the first"),
            column("jaccard", pa.float64(), "shared / found by either; null if neither found any", null=True),
        ]
    ),
)


def _corrected(name: str, about: str) -> Table:
    """A table of figures by the judge's labels, and corrected by people's labels of the review sample."""
    unknown = "null: too few labels that matter to it"
    return Table(
        name,
        ("tenant", "system", "other", "measure"),
        f"{about}, by the judge's labels alone and corrected by people's labels",
        pa.schema(
            [
                SCOPE,
                SYSTEM,
                column(
                    "other", pa.string(), "second system of a difference (first minus second), else null", null=True
                ),
                column(
                    "measure",
                    pa.string(),
                    "P@k or nDCG@k (mean over queries, binary gains), or R@k (pooled): recall of the relevant pairs of "
                    "all queries together",
                ),
                column(
                    "judge_only", pa.float64(), "value by the judge's labels alone; null without a positive", null=True
                ),
                column("value", pa.float64(), f"corrected value; {unknown}", null=True),
                column("low", pa.float64(), "lower end, 95 % interval of the corrected value", null=True),
                column("high", pa.float64(), "upper end", null=True),
                column("labels", pa.int64(), "people's labels of these queries"),
                column(
                    "effective_labels", pa.float64(), "effective number of labels, by their influence on the figure"
                ),
                column("label_clusters", pa.int64(), "clusters of queries with a label"),
                column("reason", pa.string(), "why the corrected value is unknown; null if it is known", null=True),
            ]
        ),
    )


CORRECTED_EVALUATION = _corrected("corrected_evaluation", "measures of systems and their differences")
CORRECTED_AUDIT = _corrected("corrected_audit", "recall of retrievers at the search depth and its differences")

EVALUATION_TABLES = (
    TEST_QUERIES,
    TEST_LABELS,
    TEST_RANKINGS,
    EVALUATION,
    EVALUATION_QUERIES,
    EVALUATION_PAIRS,
    CORRECTED_EVALUATION,
    MANUAL_LABELS,
    MANUAL_SCORES,
    ONLINE_VERDICTS,
    ONLINE,
    ONLINE_PAIRS,
)
