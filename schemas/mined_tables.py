"""The tables of `mine-logs`, in data order: from impressions to the pairs that become triplets."""

import pyarrow as pa

from darklode.schemas.table import QUERY_ID, STRINGS, TENANT, Table, column

IMPRESSIONS = Table(
    "impressions",
    ("tenant", "event_id"),
    "one row per document shown for a search, or per click without one; an event that a log repeats is there again",
    pa.schema(
        [
            TENANT,
            column("event_id", pa.string(), "the source's own id, or a hash of the row"),
            column(
                "search_id", pa.string(), "the search it was shown for: the source's own id, or session, query, time"
            ),
            column("session_id", pa.string(), "the user's session", null=True),
            column("timestamp", pa.timestamp("us", tz="UTC"), "when it was shown"),
            QUERY_ID,
            column("query", pa.string(), "as it was spelled: Unicode NFC, single spaces, personal data masked"),
            column("doc_id", pa.string(), "what was shown"),
            column("position", pa.int32(), "place in the list, from 1; null where the log does not say", null=True),
            column("clicked", pa.bool_(), "whether it was clicked"),
            column("dwell_seconds", pa.float32(), "how long the user stayed, where the log says so", null=True),
            column(
                "arm",
                pa.string(),
                "the arm of an experiment that answered the search, or the team that gave this to an interleaved list",
                null=True,
            ),
        ]
    ),
)

CLICK_MODEL = Table(
    "click_model",
    ("tenant", "position"),
    "what a place in the list is worth, learned from the settled days of the log; empty for the model `paper`",
    pa.schema(
        [
            TENANT,
            column("position", pa.int32(), "place in the list, from 1"),
            column("chance", pa.float64(), "of a click on a document that is shown there, 0 to 1"),
            column("looked", pa.float64(), "how likely a user looks there, relative to the likeliest place, 0 to 1"),
            column("risk", pa.float64(), "clicks to expect of a search that shows something there: −ln(1 − chance)"),
            column("exposures", pa.int64(), "how often something was shown there"),
        ]
    ),
)

CLICK_PRIOR = Table(
    "click_prior",
    ("tenant",),
    "how clicks ÷ expected clicks differ over queries and documents, as a gamma distribution; empty for `paper`",
    pa.schema(
        [
            TENANT,
            column("shape", pa.float64(), "its shape: so many clicks a document has in advance"),
            column("rate", pa.float64(), "its rate: so many expected clicks"),
        ]
    ),
)

CLICK_EVIDENCE = Table(
    "click_evidence",
    ("tenant", "date", "query_id", "doc_id"),
    "what one day of the log says about a query and a document; searches by bots are left out",
    pa.schema(
        [
            TENANT,
            column("date", pa.date32(), "day, UTC"),
            QUERY_ID,
            column("doc_id", pa.string(), "a document that was shown or clicked"),
            column("exposures", pa.int64(), "searches that count as exposure: see click.negatives"),
            column("clicks", pa.int64(), "searches in which it was clicked"),
            column("satisfied", pa.int64(), "those of them that were not too short: see click.min_dwell_seconds"),
            column(
                "expected",
                pa.float64(),
                "clicks to expect at its places: their risk by the click model, half of it where clicked; null: paper",
                null=True,
            ),
            column(
                "looks",
                pa.float64(),
                "how many of the exposures a user looked at, by the click model; null: paper",
                null=True,
            ),
        ]
    ),
)

QUERY_SPELLINGS = Table(
    "query_spellings",
    ("tenant", "date", "query_id", "query"),
    "how the queries of a day were spelled; searches by bots are left out",
    pa.schema(
        [
            TENANT,
            column("date", pa.date32(), "day, UTC"),
            QUERY_ID,
            column("query", pa.string(), "a spelling"),
            column("searches", pa.int64(), "searches that spelled it so"),
        ]
    ),
)

LOG_QUERIES = Table(
    "log_queries",
    ("tenant", "query_id"),
    "the distinct queries of the log: spellings with the same normal form are one",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("text", pa.string(), "its most frequent spelling on that day; of equals the first by bytes"),
            column("normal_form", pa.string(), "what its spellings have in common; query_id is a hash of it"),
            column("date", pa.date32(), "day on which it was first searched"),
        ]
    ),
)

QUERY_CLUSTERS = Table(
    "query_clusters",
    ("tenant", "query_id"),
    "which queries of the log are near-duplicates, and on which side each stands",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("date", pa.date32(), "day on which it was first searched"),
            column("near_query_id", pa.string(), "the first of the earlier queries that it is near to", null=True),
            column("cluster_id", pa.string(), "the query with which its chain of near ones began; its own id: itself"),
            column(
                "split",
                pa.string(),
                "train, validation, or test from mining.test_from on; null: near to queries of both sides, on neither",
                null=True,
            ),
        ]
    ),
)

QUERY_KEYS = Table(
    "query_keys",
    ("date", "place", "key"),
    "what a query of the log shares with its near-duplicates; kept, so that no night makes it again for earlier ones",
    pa.schema(
        [
            column("date", pa.date32(), "day on which the query was first searched"),
            column("place", pa.int32(), "its place among that day's queries by tenant and query_id, from 0"),
            column("key", pa.int64(), "hash of its words, of its letters, or of its letters without one of them"),
        ]
    ),
)

PLANNER_TERMS = Table(
    "planner_terms",
    ("tenant", "term"),
    "what the log planner learned from the documents and the settled days of the log",
    pa.schema(
        [
            TENANT,
            column("term", pa.string(), "a term or phrase"),
            column("weight", pa.float32(), "its importance before it is seen in a query, 0 to 1"),
            column("documents", pa.int64(), "documents that hold it"),
            column("queries", pa.int64(), "different queries that hold it"),
            column("lift", pa.float32(), "how much oftener clicked documents hold it than skipped ones", null=True),
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
            column("term", pa.string(), "a term of the query"),
            column("importance", pa.float32(), "0 to 1"),
        ]
    ),
)

ASSOCIATIONS = Table(
    "associations",
    ("tenant", "query_id", "associated_query_id", "kind"),
    "queries whose evidence serves one another (ScalingNote, Algorithm 1); a mutual one is there in both directions",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("associated_query_id", pa.string(), "the query whose evidence is lent"),
            column("kind", pa.string(), "click (directed) or relevance (mutual)"),
            column("terms", STRINGS, "the terms that matched, the most important first"),
            column(
                "score",
                pa.float32(),
                "least importance that the lender gives to a matched term; relevance: the less of the two directions",
            ),
            column("date", pa.date32(), "day on which the later of the two was first searched"),
        ]
    ),
)

RELEVANCE_EVIDENCE = Table(
    "relevance_evidence",
    ("tenant", "query_id"),
    "the ranker's best document of a query, and those between the top K and the top T in the order of a draw",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("positive_id", pa.string(), "doc_id of the best"),
            column("positive_score", pa.float32(), "the ranker's, 0 to 1"),
            column(
                "negative_ids",
                pa.list_(pa.string()),
                "doc_ids in the order of the draw; none where no more than K were ranked",
            ),
            column("negative_scores", pa.list_(pa.float32()), "the ranker's of each, 0 to 1"),
        ]
    ),
)

MINED_PAIRS = Table(
    "mined_pairs",
    ("tenant", "query_id", "positive_id", "source"),
    "queries and their positives by click and relevance, own and lent: the triplets without their texts",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("positive_id", pa.string(), "doc_id"),
            column("negative_id", pa.string(), "doc_id of the hard negative; null where there is none", null=True),
            column("positive_score", pa.float32(), "the ranker's, for relevance", null=True),
            column("negative_score", pa.float32(), "the same", null=True),
            column(
                "source",
                pa.string(),
                "click_one_hop, relevance_one_hop, click_multi_hop or relevance_multi_hop: see mining.merge",
            ),
            column("via_query_id", pa.string(), "the query whose evidence was lent", null=True),
            column("terms", STRINGS, "the terms that associate the two queries", null=True),
            column("date", pa.date32(), "first day on which the log gave it"),
        ]
    ),
    patched=True,
)

MINED_VERDICTS = Table(
    "mined_verdicts",
    ("tenant", "query_id", "positive_id", "source"),
    "what the judge said of the documents of the mined pairs that were drawn for it: see mining.verify_share",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("positive_id", pa.string(), "doc_id"),
            column("negative_id", pa.string(), "doc_id of the hard negative; null where there is none", null=True),
            column("source", pa.string(), "that of the mined pair"),
            column("tiers", STRINGS, "the tiers of whose sample it is; a tier holds the smaller ones"),
            column(
                "relevant",
                pa.bool_(),
                "whether the judge finds a chunk of the positive relevant; null where replies could not be read",
                null=True,
            ),
            column("probability", pa.float32(), "that of the document's best chunk, 0 to 1", null=True),
            column("negative_relevant", pa.bool_(), "the same of the negative; null where it is gone too", null=True),
            column("negative_probability", pa.float32(), "the same", null=True),
            column("judge_id", pa.string(), "model, revision, prompt and settings: all that can change a verdict"),
        ]
    ),
)

MINED_TEST = Table(
    "mined_test",
    ("tenant", "query_id", "doc_id"),
    "test data from a later period: relevant documents of its queries (ScalingNote, 4.1.2); only `unseen` ones count",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("query", pa.string(), "the query's text"),
            column(
                "kind",
                pa.string(),
                "seen: searched before the period, too; variant: a near-duplicate of such a one; unseen: neither",
            ),
            column(
                "shares_positive",
                pa.bool_(),
                "whether a relevant document of the query is a positive of a training triplet",
            ),
            column("doc_id", pa.string(), "a relevant document"),
            column(
                "source",
                pa.string(),
                "the strongest of those of mined_pairs; lent: see mining.test_multi_hop",
            ),
            column("date", pa.date32(), "first day on which the log gave it"),
        ]
    ),
)

MINED_TEST_POOL = Table(
    "mined_test_pool",
    ("tenant", "doc_id"),
    "the documents to retrieve from in a test: those that `mined_test` pairs, and others",
    pa.schema(
        [
            TENANT,
            column("doc_id", pa.string(), "the document"),
            column("paired", pa.bool_(), "whether `mined_test` pairs it with a query"),
        ]
    ),
)

MINED_TABLES = (
    IMPRESSIONS,
    CLICK_MODEL,
    CLICK_PRIOR,
    CLICK_EVIDENCE,
    QUERY_SPELLINGS,
    LOG_QUERIES,
    QUERY_CLUSTERS,
    QUERY_KEYS,
    PLANNER_TERMS,
    QUERY_TERMS,
    ASSOCIATIONS,
    RELEVANCE_EVIDENCE,
    *MINED_PAIRS.with_patch(),
    MINED_VERDICTS,
    MINED_TEST,
    MINED_TEST_POOL,
)
