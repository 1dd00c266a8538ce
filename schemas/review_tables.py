"""The tables of human validation: which pairs people are asked about, and what they answered."""

import pyarrow as pa

from schemas.table import CHUNK_ID, QUERY_ID, TENANT, Table, field

REVIEW_SAMPLE = Table(
    "review_sample",
    ("tenant", "query_id", "chunk_id"),
    "the pairs to review: a stratified sample of the candidates of some queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            field("position", pa.int32(), "order of review, from 0: query by query, a query's pairs in random order"),
            field("stratum", pa.string(), "the verdict, its probability and who found it: what was sampled evenly"),
            field("pairs", pa.int64(), "pairs of the stratum in the whole run"),
            field("sampled", pa.int64(), "pairs of the stratum in the sample"),
            field("weight", pa.float64(), "pairs of the run that this one stands for: pairs ÷ sampled"),
            field("shared", pa.bool_(), "every reviewer labels it; any other pair is labelled by one of them"),
        ]
    ),
)

REVIEW_STRATA = Table(
    "review_strata",
    ("stratum", "tenant", "retriever"),
    "how many pairs of the run each stratum holds, by tenant, and those of them that each retriever found",
    pa.schema(
        [
            field("stratum", pa.string(), "as in `review_sample`; it may be without a pair there"),
            field("position", pa.int32(), "order of the strata, from 0: neighbours are most alike"),
            TENANT,
            field("retriever", pa.string(), "found by it within the pool's depth; null: by any", null=True),
            field("verdict", pa.string(), "relevant, not relevant, unreadable or unjudged"),
            field("pairs", pa.int64(), "pairs of the run"),
        ]
    ),
)

REVIEWS = Table(
    "reviews",
    ("tenant", "query_id", "chunk_id", "reviewer"),
    "what people said of pairs: each reviewer's last answer",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            field("reviewer", pa.string(), "the name that the reviewer gave"),
            field(
                "relevance", pa.int32(), "0 = not relevant, 1 and more = relevant; null where it was skipped", null=True
            ),
            field("rationale", pa.string(), "the reviewer's reason, where one was given", null=True),
            field("judge_shown", pa.bool_(), "whether the reviewer could see the judge's verdict"),
            field("answered_at", pa.timestamp("us", tz="UTC"), "when"),
        ]
    ),
)

REVIEW_TABLES = (REVIEW_SAMPLE, REVIEW_STRATA, REVIEWS)
