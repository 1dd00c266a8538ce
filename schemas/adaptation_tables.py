"""Tables of `adapt-encoder`, in data order: training data, trials, results."""

import pyarrow as pa

from darklode.schemas.comparison_tables import COMPARISON_TABLES
from darklode.schemas.pooled_tables import POOLED_HEAD, POOLED_TENANTS, POOLED_TRIALS
from darklode.schemas.table import CLUSTER_INTERVAL, QUERY_ID, RELEASE_TEST, TENANT, Table, column

INDEX = column("index", pa.int32(), "index of the run it comes from, from 0; a query searches the texts of its own run")
TEXT = column(
    "text_id", pa.string(), "chunk_id of a build, doc_id of a mined run; prefixed with `run N:` from the second run on"
)
TRIAL = column("trial", pa.int32(), "number of the trial, from 0")

ADAPTATION_QUERIES = Table(
    "adaptation_queries",
    ("tenant", "query_id"),
    "train, validation and test queries; ids are prefixed with `run N:` from the second run on",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            INDEX,
            column("text", pa.string(), "text of the query"),
            column("group", pa.string(), "cluster of near-duplicates"),
            column("split", pa.string(), "split in its run: train, validation or test"),
            column("kind", pa.string(), "unseen, variant or seen, as in `mined_test`; null for a build", null=True),
            column(
                "shares_positive",
                pa.bool_(),
                "true if one of its positives is a training positive; always true for train queries",
            ),
        ]
    ),
)

ADAPTATION_LABELS = Table(
    "adaptation_labels",
    ("tenant", "query_id", "text_id"),
    "labels of these queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            TEXT,
            column(
                "relevance",
                pa.int32(),
                "0 = not relevant, by a judge, people or the log; >= 1 = relevant; null: uncertain",
                null=True,
            ),
            column("learned", pa.bool_(), "true if it is a training positive"),
            column("probability", pa.float32(), "judge probability, 0 to 1", null=True),
            column(
                "weight",
                pa.float32(),
                "weight of a training positive, above 0 to 1: its probability with `adapt.targets` weighted, if there "
                "is one, else 1; null for other labels",
                null=True,
            ),
        ]
    ),
)

ADAPTATION_TEXTS = Table(
    "adaptation_texts",
    ("tenant", "text_id"),
    "searched texts, without their content; their vectors are frozen",
    pa.schema(
        [
            TENANT,
            TEXT,
            INDEX,
            column("doc_id", pa.string(), "document of the text"),
            column("content_hash", pa.string(), "SHA-256 of title, heading and text, 32 hex digits"),
        ]
    ),
)

TERM_VECTORS = Table(
    "term_vectors",
    ("token",),
    "vectors of tokens, learned from the texts and their vectors without labels; empty if no method uses them or the "
    "encoder has no local tokenizer",
    pa.schema(
        [
            column("token", pa.int32(), "token id in the encoder's tokenizer"),
            column("vector", pa.list_(pa.float32()), "vector, weighted by the token's idf"),
        ]
    ),
)

TERM_QUERIES = Table(
    "term_queries",
    ("tenant", "query_id"),
    "the vector that each query's tokens give: the sum of their term vectors over the root of their number",
    pa.schema([TENANT, QUERY_ID, column("vector", pa.list_(pa.float32()), "vector, not normalized")]),
)

HEADROOM = Table(
    "headroom",
    ("system", "measure"),
    "systems that need no labels, and upper bounds of adaptation, on the queries used for model selection",
    pa.schema(
        [
            column(
                "system",
                pa.string(),
                "a label-free system; or a bound: base with its top 100 in ideal order, labelled texts by judge "
                "probability, perfect",
            ),
            column("measure", pa.string(), "name in ir_measures"),
            column("value", pa.float64(), "mean over queries, 0 to 1"),
            column("queries", pa.int64(), "number of queries"),
            column("label_free", pa.bool_(), "true if the system uses no label, except to select its setting"),
            column(
                "setting",
                pa.float64(),
                "its setting, selected on these queries: power of the covariance (whitened), share of the term "
                "vectors, weight of the first texts (feedback), weight of the encoder's scores (weighted fusion)",
                null=True,
            ),
            column("centering", pa.float64(), "share of the mean query that whitening removes", null=True),
        ]
    ),
)

LEXICAL_RANKINGS = Table(
    "lexical_rankings",
    ("tenant", "query_id", "rank"),
    "BM25 rankings of the queries used for model selection, for `adapt.serve_as: hybrid`",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("rank", pa.int32(), "rank, from 1"),
            TEXT,
            column("score", pa.float32(), "BM25 score"),
        ]
    ),
)

TRAINING_LOG = Table(
    "training_log",
    ("trial", "step"),
    "training log of each trial",
    pa.schema(
        [
            TRIAL,
            column("step", pa.int32(), "training step; 0: the base"),
            column("loss", pa.float64(), "mean loss since the previous row; null at step 0", null=True),
            column(
                "validation",
                pa.float64(),
                "nDCG@10 on the validation queries; with cross-validation all values are means over folds",
            ),
            column(
                "replaced",
                pa.float64(),
                "share of negatives replaced by the last mining; null before the second",
                null=True,
            ),
            column("judged", pa.float64(), "share of negatives labelled not relevant"),
            column("short", pa.float64(), "share of requested negatives that were not found"),
            column("spread", pa.float64(), "1 - mean cosine of two validation query vectors; 0: collapsed"),
        ]
    ),
)

ADAPTATION_TRIALS = Table(
    "adaptation_trials",
    ("trial", "share"),
    "trials, with their results on the queries used for model selection",
    pa.schema(
        [
            TRIAL,
            column(
                "setting",
                pa.string(),
                "learning rate (0: the start, untrained), ridge of the closed form, or power of a whitening",
            ),
            column("share", pa.float64(), "interpolation from base weights (0) to trained weights (1)"),
            column("step", pa.int32(), "step of the selected weights"),
            column(
                "validation",
                pa.float64(),
                "nDCG@10 on the queries used for model selection; of the fusion with BM25 if it is served so",
            ),
            column("queries", pa.int64(), "number of these queries"),
            column(
                "folds",
                pa.int32(),
                "number of cross-validation folds, by cluster; null: validation queries only",
                null=True,
            ),
            column("stopped", pa.string(), "reason for early stopping", null=True),
        ]
    ),
)

ADAPTER_WEIGHTS = Table(
    "adapter_weights",
    ("trial", "tensor", "row"),
    "trained weights of each trial (with cross-validation: of the selected one, on all train queries). Heads: the term "
    "added to the query vector, so zeros are the base; `term_start.…`: the mix with term vectors that they are applied "
    "to. Encoders: their own tensors, deleted once the encoder is released",
    pa.schema(
        [
            TRIAL,
            column("tensor", pa.string(), "tensor name, such as `0.weight` and `0.bias` of a head's first layer"),
            column("row", pa.int32(), "row of the tensor, from 0; a 1-d tensor is one row"),
            column("weights", pa.list_(pa.float32()), "values"),
        ]
    ),
)

CONTROL_WEIGHTS = Table(
    "control_weights",
    ("trial", "tensor", "row"),
    "weights of the selected setting trained with shuffled labels; empty if there is no such control, and for encoders "
    "once they are tested",
    ADAPTER_WEIGHTS.schema,
)

UNJUDGED_VERDICTS = Table(
    "unjudged_verdicts",
    ("tenant", "query_id", "text_id"),
    "verdicts on unlabelled texts in the top ten of the test queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            TEXT,
            column("rank", pa.int32(), "best rank in any compared system, from 1"),
            column("judge_id", pa.string(), "as in `verdicts`"),
            column("relevant", pa.bool_(), "label; null if the reply could not be parsed", null=True),
            column("probability", pa.float32(), "probability of relevance, 0 to 1", null=True),
            column("grade", pa.int32(), "graded relevance, if the judge returns grades", null=True),
            column("error", pa.string(), "reason for a missing label", null=True),
        ]
    ),
)

UNJUDGED_RESULTS = Table(
    "unjudged_results",
    ("system",),
    "labelled share of the top ten of the test queries, before and after judging unlabelled texts",
    pa.schema(
        [
            column("system", pa.string(), "name of the system"),
            column("places", pa.int64(), "results in the lists, at most ten per query; in a comparison over all seeds"),
            column("labelled", pa.int64(), "results labelled before; labelled / places is Judged@10"),
            column(
                "judged",
                pa.int64(),
                "results labelled by the judge since: Judged@10 is now (labelled + judged) / places",
            ),
            column("relevant", pa.int64(), "results judged relevant"),
        ]
    ),
)


def _comparison_columns(name: str, system: str) -> list[pa.Field]:
    """A system that the adapted encoder is compared with, and its nDCG@10 minus the system's, with interval."""
    return [
        column(name, pa.string(), system, null=True),
        column(f"over_{name}", pa.float64(), f"nDCG@10 minus that of {name}, on the deciding test queries", null=True),
        column(f"over_{name}_low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters", null=True),
        column(f"over_{name}_high", pa.float64(), "upper end", null=True),
    ]


ADAPTER_VERDICT = Table(
    "adapter_verdict",
    ("tenant",),
    "release decision and its reason",
    pa.schema(
        [
            TENANT,
            column("shipped", pa.string(), "released encoder: adapted or base"),
            column("reason", pa.string(), "reason in one sentence"),
            column(
                "label_bias",
                pa.string(),
                "why the labels favour the base; null if no judge of the runs shares its model",
                null=True,
            ),
            column(
                "part", pa.string(), "part of the test queries used for the decision, as in `evaluation`", null=True
            ),
            column("queries", pa.int64(), "number of these queries"),
            column(
                "difference",
                pa.float64(),
                "nDCG@10 of adapted minus base; of their fusions with BM25 if `adapt.serve_as` is hybrid",
                null=True,
            ),
            *RELEASE_TEST,
            column("setting", pa.string(), "selected learning rate or ridge penalty"),
            column("share", pa.float64(), "selected interpolation from base weights (0) to trained weights (1)"),
            column("validation_queries", pa.int64(), "queries used for model selection"),
            column("folds", pa.int32(), "number of cross-validation folds; null: validation queries only", null=True),
            *_comparison_columns(
                "label_free", "the label-free system that is best on the queries used for model selection"
            ),
            *_comparison_columns(
                "hybrid", "the fusion of BM25 and base that is best there, compared with BM25 and adapted fused so"
            ),
            *_comparison_columns("control", "the same method with shuffled labels; null if there is none"),
        ]
    ),
)

ADAPTED_TENANTS = Table(
    "adapted_tenants",
    ("tenant",),
    "result of each tenant of `darklode adapt --tenants`",
    pa.schema(
        [
            TENANT,
            column("folder", pa.string(), "subfolder of its adapter"),
            column(
                "shipped",
                pa.string(),
                "released encoder: adapted or base; null if the tenant has too little data",
                null=True,
            ),
            column("reason", pa.string(), "reason in one sentence"),
            column("adapter", pa.string(), "adapter id", null=True),
            column("data", pa.string(), "fingerprint of the training data", null=True),
            column("weights", pa.string(), "hash of the adapter files", null=True),
            column(
                "part", pa.string(), "part of the test queries used for the decision, as in `evaluation`", null=True
            ),
            column("queries", pa.int64(), "number of these queries", null=True),
            column("difference", pa.float64(), "nDCG@10 of adapted minus base", null=True),
            *CLUSTER_INTERVAL,
            column("validation_queries", pa.int64(), "queries used for model selection", null=True),
        ]
    ),
)

ENCODER_SWAP = Table(
    "encoder_swap",
    ("tenant", "query"),
    "live queries by the change of their top ten (`darklode adapt preview`), most changed first",
    pa.schema(
        [
            TENANT,
            column("query", pa.string(), "text of the query"),
            column("searches", pa.int64(), "number of searches; null if unknown", null=True),
            column("overlap", pa.int32(), "texts in both top tens"),
            column("base_ids", pa.list_(pa.string()), "top ten of the base, best first"),
            column("adapted_ids", pa.list_(pa.string()), "top ten of the adapted encoder, best first"),
            column("base_titles", pa.list_(pa.string()), "titles of base_ids, or doc_ids without a title"),
            column("adapted_titles", pa.list_(pa.string()), "titles of adapted_ids, or doc_ids without a title"),
        ]
    ),
)

ADAPTATION_TABLES = (
    ADAPTATION_QUERIES,
    ADAPTATION_LABELS,
    ADAPTATION_TEXTS,
    TERM_VECTORS,
    TERM_QUERIES,
    HEADROOM,
    LEXICAL_RANKINGS,
    TRAINING_LOG,
    ADAPTATION_TRIALS,
    ADAPTER_WEIGHTS,
    CONTROL_WEIGHTS,
    UNJUDGED_VERDICTS,
    UNJUDGED_RESULTS,
    ADAPTER_VERDICT,
    ADAPTED_TENANTS,
    POOLED_HEAD,
    POOLED_TRIALS,
    POOLED_TENANTS,
    *COMPARISON_TABLES,
    ENCODER_SWAP,
)
