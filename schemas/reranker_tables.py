"""Tables of `train-reranker`, in data order: candidates, training pairs, trials, release decision."""

import pyarrow as pa

from darklode.schemas.adaptation_tables import TEXT, TRIAL
from darklode.schemas.table import QUERY_ID, RELEASE_TEST, TENANT, Table, column

RERANK_CANDIDATES = Table(
    "rerank_candidates",
    ("tenant", "query_id", "rank"),
    "first texts of BM25 and the encoder for each query, fused: what a reranker orders",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("rank", pa.int32(), "rank in the fused list, from 1"),
            TEXT,
            column(
                "score", pa.float32(), "fused score: weighted mean of normalized scores, or sum of reciprocal ranks"
            ),
        ]
    ),
)

RERANKER_PAIRS = Table(
    "reranker_pairs",
    ("tenant", "query_id", "text_id"),
    "training pairs of a reranker",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            TEXT,
            column("target", pa.float32(), "probability of relevance to learn: 1 for a positive, 0 for a negative"),
            column("weight", pa.float32(), "weight of the pair's loss, above 0; the positives' mean is 1"),
        ]
    ),
)

RERANKER_LOG = Table(
    "reranker_log",
    ("trial", "step"),
    "training log of each trial of a reranker or a distilled judge",
    pa.schema(
        [
            TRIAL,
            column("step", pa.int32(), "training step; 0: the initial model"),
            column("loss", pa.float64(), "mean loss since the previous row; null at step 0", null=True),
            column(
                "validation",
                pa.float64(),
                "nDCG@10 on the validation queries with the weight below (judge distil: area under the ROC curve of "
                "the teacher's labels); null if the initial model is no reranker",
                null=True,
            ),
            column(
                "weight",
                pa.float64(),
                "best weight of the reranker's scores on these queries; the candidates' scores have 1 minus it",
                null=True,
            ),
        ]
    ),
)

RERANKER_TRIALS = Table(
    "reranker_trials",
    ("trial",),
    "trials, with their results on the queries used for model selection",
    pa.schema(
        [
            TRIAL,
            column("learning_rate", pa.float64(), "peak learning rate"),
            column("step", pa.int32(), "step of the selected weights"),
            column("weight", pa.float64(), "selected weight of the reranker's scores, 0 to 1"),
            column("validation", pa.float64(), "nDCG@10 with this weight"),
            column("candidates", pa.float64(), "nDCG@10 of the candidates' own order"),
            column("base", pa.float64(), "nDCG@10 of the initial model, with its best weight; null if none", null=True),
            column("base_weight", pa.float64(), "that weight", null=True),
            column("queries", pa.int64(), "number of these queries"),
            column("stopped", pa.string(), "reason for early stopping", null=True),
        ]
    ),
)

RERANKER_VERDICT = Table(
    "reranker_verdict",
    ("tenant",),
    "release decision and its reason",
    pa.schema(
        [
            TENANT,
            column("shipped", pa.string(), "reranker or none"),
            column("reason", pa.string(), "reason in one sentence"),
            column(
                "other", pa.string(), "system that it is compared with: the best one without training on validation"
            ),
            column("part", pa.string(), "part of the test queries used, as in `evaluation`", null=True),
            column("queries", pa.int64(), "number of these queries"),
            column("difference", pa.float64(), "nDCG@10 of the reranked lists minus that of `other`", null=True),
            *RELEASE_TEST,
            column("weight", pa.float64(), "selected weight of the reranker's scores, 0 to 1"),
            column("validation_queries", pa.int64(), "queries used for model selection"),
        ]
    ),
)

RERANKER_TABLES = (RERANK_CANDIDATES, RERANKER_PAIRS, RERANKER_LOG, RERANKER_TRIALS, RERANKER_VERDICT)
