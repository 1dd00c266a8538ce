"""Tables of `mine-logs`, in data order: from impressions to the pairs that become triplets."""

import pyarrow as pa

from darklode.schemas.table import QUERY_ID, STRINGS, TENANT, Table, column

IMPRESSIONS = Table(
    "impressions",
    ("tenant", "event_id"),
    "search log: a row per document shown for a search, or per click without an impression; repeats are kept",
    pa.schema(
        [
            TENANT,
            column("event_id", pa.string(), "id from the source, or a hash of the row"),
            column("search_id", pa.string(), "id of the search: from the source, or made of session, query and time"),
            column("session_id", pa.string(), "session of the user", null=True),
            column("user_id", pa.string(), "user", null=True),
            column("timestamp", pa.timestamp("us", tz="UTC"), "time of the impression"),
            QUERY_ID,
            column("query", pa.string(), "query as spelled: Unicode NFC, single spaces, personal data masked"),
            column("doc_id", pa.string(), "document shown"),
            column("position", pa.int32(), "rank in the result list, from 1; null if unknown", null=True),
            column("clicked", pa.bool_(), "true if clicked"),
            column("dwell_seconds", pa.float32(), "dwell time after the click, if logged", null=True),
            column(
                "variant",
                pa.string(),
                "A/B variant that served the search, or the ranker that contributed the document when interleaving",
                null=True,
            ),
        ]
    ),
)

CLICK_MODEL = Table(
    "click_model",
    ("tenant", "position"),
    "position bias, estimated from the settled days of the log; empty for the click model `paper`",
    pa.schema(
        [
            TENANT,
            column("position", pa.int32(), "rank in the result list, from 1"),
            column("click_probability", pa.float64(), "click probability of a document shown at this position, 0 to 1"),
            column(
                "examination_probability",
                pa.float64(),
                "relative to the most examined position, 0 to 1",
            ),
            column("hazard", pa.float64(), "expected clicks of an impression here: -ln(1 - click_probability)"),
            column("exposures", pa.int64(), "number of impressions at this position"),
        ]
    ),
)

CLICK_PRIOR = Table(
    "click_prior",
    ("tenant",),
    "gamma prior of clicks / expected clicks over query-document pairs; empty for the click model `paper`",
    pa.schema(
        [
            TENANT,
            column("shape", pa.float64(), "shape parameter: pseudo-count of clicks"),
            column("rate", pa.float64(), "rate parameter: pseudo-count of expected clicks"),
        ]
    ),
)

CLICK_EVIDENCE = Table(
    "click_evidence",
    ("tenant", "date", "query_id", "doc_id", "session_split"),
    "daily click counts of a query and a document, by split of the sessions, without bots",
    pa.schema(
        [
            TENANT,
            column("date", pa.date32(), "day, UTC"),
            QUERY_ID,
            column("doc_id", pa.string(), "document shown or clicked"),
            column(
                "session_split",
                pa.string(),
                "split of the sessions counted, train or validation; null: searches without a session id, or "
                "split.group_by has neither session nor user",
                null=True,
            ),
            column(
                "depth",
                pa.float64(),
                "highest position on that day relative to the lowest of its search, 0 to 1; null if unknown",
                null=True,
            ),
            column("exposures", pa.int64(), "searches that count as an exposure (see click.negatives)"),
            column("clicks", pa.int64(), "searches with a click on it"),
            column("satisfied", pa.int64(), "clicks with sufficient dwell time (click.min_dwell_seconds)"),
            column(
                "expected",
                pa.float64(),
                "expected clicks by the click model, halved for clicked impressions; null for `paper`",
                null=True,
            ),
            column(
                "examinations",
                pa.float64(),
                "expected number of examined exposures by the click model; null for `paper`",
                null=True,
            ),
        ]
    ),
)

QUERY_SPELLINGS = Table(
    "query_spellings",
    ("tenant", "date", "query_id", "query"),
    "spellings of the queries of a day, without bots",
    pa.schema(
        [
            TENANT,
            column("date", pa.date32(), "day, UTC"),
            QUERY_ID,
            column("query", pa.string(), "spelling"),
            column("searches", pa.int64(), "searches with this spelling"),
            column("session_split", pa.string(), "split of the query's first session on that day", null=True),
        ]
    ),
)

REFORMULATIONS = Table(
    "reformulations",
    ("tenant", "date", "query_id", "next_query_id", "session_split"),
    "consecutive searches of a session for different queries, at most 30 minutes apart, by day, without bots",
    pa.schema(
        [
            TENANT,
            column("date", pa.date32(), "day, UTC"),
            QUERY_ID,
            column("next_query_id", pa.string(), "query searched next in the session"),
            column("session_split", pa.string(), "split of the sessions, see click_evidence", null=True),
            column("searches", pa.int64(), "number of such steps"),
            column("shares_click", pa.bool_(), "true if a document was clicked for both queries on that day"),
        ]
    ),
)

LOG_QUERIES = Table(
    "log_queries",
    ("tenant", "query_id"),
    "distinct queries of the log; spellings with the same normal form are one query",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("text", pa.string(), "most frequent spelling on that day; ties: first by bytes"),
            column("normal_form", pa.string(), "normal form of its spellings; query_id is its hash"),
            column("date", pa.date32(), "day of the first search"),
            column("session_split", pa.string(), "split of the session that searched it first", null=True),
        ]
    ),
)

QUERY_CLUSTERS = Table(
    "query_clusters",
    ("tenant", "query_id"),
    "clusters of near-duplicate queries, and the split of each query",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("date", pa.date32(), "day of the first search"),
            column("near_query_id", pa.string(), "first earlier query that is a near-duplicate of it", null=True),
            column(
                "cluster_id", pa.string(), "first query of the chain of near-duplicates; its own id if it starts one"
            ),
            column(
                "split",
                pa.string(),
                "train, validation, or test (from mining.test_from on); null: has near-duplicates in two splits",
                null=True,
            ),
        ]
    ),
)

QUERY_KEYS = Table(
    "query_keys",
    ("date", "place", "key"),
    "near-duplicate keys of queries; stored, so a night computes them for new queries only",
    pa.schema(
        [
            column("date", pa.date32(), "day of the query's first search"),
            column("place", pa.int32(), "index among that day's queries ordered by tenant and query_id, from 0"),
            column("key", pa.int64(), "hash of its words, its letters, or its letters with one deleted"),
        ]
    ),
)

LEARNED_TERM_WEIGHTS = Table(
    "learned_term_weights",
    ("tenant", "term"),
    "term weights learned from the documents and the settled days of the log",
    pa.schema(
        [
            TENANT,
            column("term", pa.string(), "term or phrase"),
            column("weight", pa.float32(), "importance independent of a query, 0 to 1"),
            column("documents", pa.int64(), "documents that contain it"),
            column("queries", pa.int64(), "distinct queries that contain it"),
            column("lift", pa.float32(), "frequency in clicked documents / frequency in skipped documents", null=True),
        ]
    ),
)

QUERY_TERMS = Table(
    "query_terms",
    ("tenant", "query_id", "term"),
    "importance of each term of a query (ScalingNote, 4.1.1)",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("term", pa.string(), "term of the query"),
            column("importance", pa.float32(), "importance, 0 to 1"),
        ]
    ),
)

ASSOCIATIONS = Table(
    "associations",
    ("tenant", "query_id", "associated_query_id", "kind"),
    "query associations (ScalingNote, Algorithm 1); a mutual association has a row in each direction",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("associated_query_id", pa.string(), "query that the evidence comes from"),
            column(
                "kind",
                pa.string(),
                "click (directed), relevance (mutual) or session (mutual: consecutive queries of a session, which lend "
                "each other clicks)",
            ),
            column("terms", STRINGS, "matched terms, most important first"),
            column(
                "score",
                pa.float32(),
                "minimum importance of a matched term in the associated query; relevance: minimum of both directions; "
                "session: maximum of the minima of both directions, 0 without a matched term",
            ),
            column(
                "date", pa.date32(), "first search of the later of the two queries; session: of the first reformulation"
            ),
        ]
    ),
)

RELEVANCE_EVIDENCE = Table(
    "relevance_evidence",
    ("tenant", "query_id"),
    "best-ranked document of a query, and documents ranked between top K and top T in random order",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("positive_id", pa.string(), "doc_id of the best document"),
            column("positive_score", pa.float32(), "score of the ranker, 0 to 1"),
            column(
                "negative_ids",
                pa.list_(pa.string()),
                "doc_ids in random order; empty if at most K documents were ranked",
            ),
            column("negative_scores", pa.list_(pa.float32()), "score of each by the ranker, 0 to 1"),
        ]
    ),
)

MINED_PAIRS = Table(
    "mined_pairs",
    ("tenant", "query_id", "positive_id", "source"),
    "positives of queries by click and relevance, one-hop and multi-hop: triplets without texts",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("positive_id", pa.string(), "doc_id"),
            column("negative_id", pa.string(), "doc_id of the hard negative; null if none", null=True),
            column("positive_score", pa.float32(), "score of the ranker; relevance only", null=True),
            column("negative_score", pa.float32(), "same for the negative", null=True),
            column(
                "source",
                pa.string(),
                "click_one_hop, relevance_one_hop, click_multi_hop or relevance_multi_hop (see mining.merge)",
            ),
            column("via_query_id", pa.string(), "associated query that the evidence comes from (multi-hop)", null=True),
            column("terms", STRINGS, "matched terms of the association", null=True),
            column("date", pa.date32(), "first day of the log with this row"),
        ]
    ),
    patched=True,
)

MINED_VERDICTS = Table(
    "mined_verdicts",
    ("tenant", "query_id", "positive_id", "source"),
    "verdicts of the judge on a sample of the mined pairs (mining.verify_share)",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("positive_id", pa.string(), "doc_id"),
            column("negative_id", pa.string(), "doc_id of the hard negative; null if none", null=True),
            column("source", pa.string(), "source of the mined pair"),
            column("tiers", STRINGS, "tiers whose sample contains the pair; tiers are nested"),
            column(
                "relevant",
                pa.bool_(),
                "true if a chunk of the positive is judged relevant; null if replies could not be parsed",
                null=True,
            ),
            column("probability", pa.float32(), "probability of the document's best chunk, 0 to 1", null=True),
            column(
                "negative_relevant",
                pa.bool_(),
                "same for the negative; null also if the document was deleted",
                null=True,
            ),
            column("negative_probability", pa.float32(), "same for the negative", null=True),
            column(
                "judge_id",
                pa.string(),
                "id of everything that can change a verdict: model, revision, prompt, settings; a cascade's own, "
                "because a document's label may combine replies of both of its judges",
            ),
        ]
    ),
)

MINED_TEST = Table(
    "mined_test",
    ("tenant", "query_id", "doc_id"),
    "test data of a later period (ScalingNote, 4.1.2): relevant documents of its queries; only `unseen` ones count",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("query", pa.string(), "text of the query"),
            column(
                "kind",
                pa.string(),
                "seen: also searched before the period; variant: near-duplicate of a seen query; unseen: neither",
            ),
            column(
                "shares_positive",
                pa.bool_(),
                "true if a relevant document of the query is a positive of a training triplet",
            ),
            column("doc_id", pa.string(), "relevant document"),
            column(
                "source",
                pa.string(),
                "strongest source in mined_pairs; multi-hop only if mining.test_multi_hop",
            ),
            column("date", pa.date32(), "first day of the log with this row"),
        ]
    ),
)

MINED_TEST_POOL = Table(
    "mined_test_pool",
    ("tenant", "doc_id"),
    "corpus of the test: documents of `mined_test` and distractors",
    pa.schema(
        [
            TENANT,
            column("doc_id", pa.string(), "document"),
            column("paired", pa.bool_(), "true if `mined_test` contains it"),
        ]
    ),
)

MINED_TABLES = (
    IMPRESSIONS,
    CLICK_MODEL,
    CLICK_PRIOR,
    CLICK_EVIDENCE,
    QUERY_SPELLINGS,
    REFORMULATIONS,
    LOG_QUERIES,
    QUERY_CLUSTERS,
    QUERY_KEYS,
    LEARNED_TERM_WEIGHTS,
    QUERY_TERMS,
    ASSOCIATIONS,
    RELEVANCE_EVIDENCE,
    *MINED_PAIRS.with_patch(),
    MINED_VERDICTS,
    MINED_TEST,
    MINED_TEST_POOL,
)
