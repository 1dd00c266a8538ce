"""The tables of `evaluate-systems`, in data order: what is asked, what each system finds, and what that is worth."""

import pyarrow as pa

from darklode.schemas.table import QUERY_ID, TENANT, Table, column

SCOPE = column("tenant", pa.string(), "null: all tenants together", null=True)
SYSTEM = column("system", pa.string(), "a retriever, an encoder, or the name of a run file")
TEXT_ID = column("text_id", pa.string(), "what is retrieved: chunk_id of a build, doc_id of a mined run")
MEASURE = column("measure", pa.string(), "name of ir_measures, such as nDCG@10; AUC-SAT or AUC-REL for people's labels")
PART = column(
    "part",
    pa.string(),
    "which queries: counted (those that a claim may rest on), all, unseen, variant or seen (in training), "
    "shared positive or own positive (whether training has a positive of it, among those counted); labelled for AUC",
)
LOW, HIGH = (
    column(
        name, pa.float64(), f"{end} end, 95 % bootstrap interval over groups of queries; null of one group", null=True
    )
    for name, end in (("low", "lower"), ("high", "upper"))
)

TEST_QUERIES = Table(
    "test_queries",
    ("tenant", "query_id"),
    "the queries that `evaluate` asks: those of the test split, or of the later period, that have a positive",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("text", pa.string(), "the query's text"),
            column("group", pa.string(), "queries of one group are drawn together: a cluster, or the query itself"),
            column("kind", pa.string(), "unseen, variant or seen in training; null where nobody knows", null=True),
            column(
                "shares_positive",
                pa.bool_(),
                "whether a positive of it is one of a training query; null where nobody knows",
                null=True,
            ),
        ]
    ),
)

TEST_LABELS = Table(
    "test_labels",
    ("tenant", "query_id", "text_id"),
    "what is right: the labels of the test queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            TEXT_ID,
            column("relevance", pa.int32(), "0 = judged and not relevant, 1 and more = relevant"),
        ]
    ),
)

TEST_RANKINGS = Table(
    "test_rankings",
    ("tenant", "system", "query_id", "rank"),
    "each system's list for each test query, as deep as the measures look",
    pa.schema(
        [
            TENANT,
            SYSTEM,
            QUERY_ID,
            column("rank", pa.int32(), "place in the system's list, from 1"),
            TEXT_ID,
            column("score", pa.float32(), "the system's own score, higher is better"),
        ]
    ),
)

EVALUATION = Table(
    "evaluation",
    ("tenant", "system", "measure", "part"),
    "what each system reaches: means over queries",
    pa.schema(
        [
            SCOPE,
            SYSTEM,
            MEASURE,
            PART,
            column("value", pa.float64(), "mean over the queries, 0 to 1; AUC over all pairs together"),
            LOW,
            HIGH,
            column("ceiling", pa.float64(), "the same of a perfect list: more than that cannot be reached"),
            column("queries", pa.int64(), "how many queries"),
        ]
    ),
)

EVALUATION_QUERIES = Table(
    "evaluation_queries",
    ("tenant", "system", "query_id", "measure"),
    "what each system reaches on each test query",
    pa.schema([TENANT, SYSTEM, QUERY_ID, MEASURE, column("value", pa.float64(), "0 to 1")]),
)

EVALUATION_PAIRS = Table(
    "evaluation_pairs",
    ("tenant", "system", "other", "measure", "part"),
    "each two systems on the same queries: what the first has more than the second",
    pa.schema(
        [
            SCOPE,
            SYSTEM,
            column("other", pa.string(), "the system that it is held against"),
            MEASURE,
            PART,
            column("difference", pa.float64(), "mean over the queries of the first's value less the second's"),
            column(
                "low",
                pa.float64(),
                "lower end, 95 % bootstrap-t interval over clusters; null of one, and of few for AUC",
                null=True,
            ),
            column("high", pa.float64(), "upper end", null=True),
            column(
                "bounded_low",
                pa.float64(),
                "97.5 % lower bound that allows for a rare loss that no cluster shows; null for AUC",
                null=True,
            ),
            column("p", pa.float64(), "two-sided, of a test that swaps the systems within clusters by chance"),
            column(
                "p_holm", pa.float64(), "p, corrected for all pairs and measures of the same tenant and part (Holm)"
            ),
            column(
                "detectable",
                pa.float64(),
                "least true difference that so many queries show in 4 of 5 tests; null of one group and for AUC",
                null=True,
            ),
            column("wins", pa.int64(), "queries on which the first has more; null for AUC", null=True),
            column("losses", pa.int64(), "queries on which it has less; null for AUC", null=True),
            column("queries", pa.int64(), "how many queries"),
            column(
                "clusters",
                pa.int64(),
                "clusters of near-duplicates that they fall into; for AUC, queries with a label of the rarer kind",
            ),
        ]
    ),
)

MANUAL_LABELS = Table(
    "manual_labels",
    ("tenant", "query_id", "text_id"),
    "what people said of pairs of a query and a document (ScalingNote, 4.1.2: the Manual test dataset)",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("query", pa.string(), "the query's text"),
            column("text_id", pa.string(), "doc_id; of a text that the run does not have text- and a hash of it"),
            column("text", pa.string(), "the text where the run does not have it", null=True),
            column("satisfaction", pa.bool_(), "whether it satisfies; null where nobody said", null=True),
            column("relevance", pa.bool_(), "whether it is relevant; null where nobody said", null=True),
        ]
    ),
)

MANUAL_SCORES = Table(
    "manual_scores",
    ("tenant", "system", "query_id", "text_id"),
    "how well each system thinks that the pairs of `manual_labels` fit",
    pa.schema(
        [
            TENANT,
            SYSTEM,
            QUERY_ID,
            TEXT_ID,
            column(
                "score", pa.float32(), "its own score; null: it found nothing in common, the worst there is", null=True
            ),
        ]
    ),
)

ONLINE_VERDICTS = Table(
    "online_verdicts",
    ("tenant", "date", "search_id", "query_id", "doc_id"),
    "what the judge said of the first 20 documents that some searches of the log were shown: evaluate.judged_searches",
    pa.schema(
        [
            TENANT,
            column("date", pa.date32(), "day of the search"),
            column("arm", pa.string(), "the arm that answered; null of none or of several", null=True),
            column("search_id", pa.string(), "the search"),
            column("session", pa.string(), "its session; without one, the search itself"),
            QUERY_ID,
            column("query", pa.string(), "the text that was judged: a spelling of the query among those drawn"),
            column("doc_id", pa.string(), "what was shown"),
            column("position", pa.int32(), "place in the list, from 1"),
            column(
                "relevant",
                pa.bool_(),
                "whether the judge finds a chunk of it relevant; null where it is gone, or replies could not be read",
                null=True,
            ),
            column("probability", pa.float32(), "that of its best chunk, 0 to 1", null=True),
            column("judge_id", pa.string(), "model, revision, prompt and settings: all that can change a verdict"),
        ]
    ),
)

ONLINE = Table(
    "online",
    ("tenant", "arm", "measure"),
    "what the log itself says of each arm of an experiment, and of all that was searched (ScalingNote, 4.6)",
    pa.schema(
        [
            SCOPE,
            column("arm", pa.string(), "the arm; null: the whole log", null=True),
            column("measure", pa.string(), "what is counted, such as abandoned searches; see docs/guides/evaluate.md"),
            column("value", pa.float64(), "its share, 0 to 1"),
            column("low", pa.float64(), "lower end, 95 % bootstrap interval over sessions"),
            column("high", pa.float64(), "upper end"),
            column("counted", pa.int64(), "of how many: documents shown or judged, searches or sessions"),
            column("sessions", pa.int64(), "sessions that these are of"),
        ]
    ),
)

ONLINE_PAIRS = Table(
    "online_pairs",
    ("tenant", "arm", "other", "measure"),
    "each two arms of an experiment: what the first has more than the second",
    pa.schema(
        [
            SCOPE,
            column("arm", pa.string(), "the arm"),
            column("other", pa.string(), "the arm that it is held against"),
            column("measure", pa.string(), "as in `online`"),
            column("difference", pa.float64(), "the first's share less the second's"),
            column(
                "low",
                pa.float64(),
                "lower end, 95 % bootstrap-t interval over sessions; null where an arm has few or all alike",
                null=True,
            ),
            column("high", pa.float64(), "upper end", null=True),
            column("p", pa.float64(), "two-sided, of a permutation test that shuffles the arms of sessions"),
            column("p_holm", pa.float64(), "p, corrected for all pairs and measures of the tenant (Holm)"),
        ]
    ),
)

EVALUATION_TABLES = (
    TEST_QUERIES,
    TEST_LABELS,
    TEST_RANKINGS,
    EVALUATION,
    EVALUATION_QUERIES,
    EVALUATION_PAIRS,
    MANUAL_LABELS,
    MANUAL_SCORES,
    ONLINE_VERDICTS,
    ONLINE,
    ONLINE_PAIRS,
)
