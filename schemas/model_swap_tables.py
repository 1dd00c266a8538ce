"""Tables of `adapt model-swap`: the sample of texts, the fitted maps, and what mapped queries find."""

import pyarrow as pa

from darklode.schemas.adaptation_tables import TRIAL
from darklode.schemas.table import TENANT, Table, column

_LOW, _HIGH = "lower end of the 95 % interval over queries", "upper end"

SWAP_TEXTS = Table(
    "swap_texts",
    ("tenant", "text_id"),
    "texts that both encoders embed, distinct: the whole index, or a sample of it",
    pa.schema(
        [
            TENANT,
            column("text_id", pa.string(), "chunk_id of a build, doc_id of a mined run"),
            column("content_hash", pa.string(), "SHA-256 of title, heading and text, 32 hex digits"),
            column("fit_order", pa.int32(), "place among the texts that maps are fitted on, from 0", null=True),
            column(
                "heat",
                pa.float64(),
                "clicks in the log, exposures as fractions; without a log: training queries with the text among the "
                "index encoder's first ten",
            ),
        ]
    ),
)

SWAP_TRIALS = Table(
    "swap_trials",
    ("trial",),
    "fitted maps, and the share of the new encoder's own results that they find on validation queries",
    pa.schema(
        [
            TRIAL,
            column("method", pa.string(), "procrustes, ridge, low rank, score regression, distilled or mlp"),
            column("setting", pa.string(), "what it was fitted on and how strongly it was regularized"),
            column("recall_10", pa.float64(), "share of re-embedding's first 10, mean over validation queries"),
            column("recall_100", pa.float64(), "share of its first 100"),
            column("selected", pa.bool_(), "true for the best trial"),
        ]
    ),
)

SWAP_AGREEMENT = Table(
    "swap_agreement",
    ("system", "reference", "k"),
    "share of a reference's first k that a system finds among its first k, on held-out queries without labels",
    pa.schema(
        [
            column("system", pa.string(), "how queries are encoded; all search the old vectors"),
            column(
                "reference",
                pa.string(),
                "re-embedding: new queries on new vectors; index encoder: old queries on old vectors (no change)",
            ),
            column("k", pa.int32(), "cutoff"),
            column("value", pa.float64(), "mean over queries, 0 to 1"),
            column("low", pa.float64(), _LOW, null=True),
            column("high", pa.float64(), _HIGH, null=True),
            column("bounded_low", pa.float64(), "97.5 % lower bound for any distribution (Gaffke 2005)"),
            column("queries", pa.int64(), "number of queries"),
        ]
    ),
)

SWAP_QUALITY = Table(
    "swap_quality",
    ("system", "measure"),
    "the index encoder, full re-embedding and mapped queries on labelled test queries; empty without labels",
    pa.schema(
        [
            column("system", pa.string(), "index encoder, re-embedding or mapped"),
            column("measure", pa.string(), "name in ir_measures"),
            column("value", pa.float64(), "mean over queries, 0 to 1"),
            column("difference", pa.float64(), "difference to the index encoder"),
            column("low", pa.float64(), "lower end of the difference's 95 % interval over clusters", null=True),
            column("high", pa.float64(), _HIGH, null=True),
            column("queries", pa.int64(), "number of queries"),
        ]
    ),
)

SWAP_PARTIAL = Table(
    "swap_partial",
    ("order", "share"),
    "partial re-embedding: share of re-embedding's results found if some texts get new vectors and both indexes are "
    "searched",
    pa.schema(
        [
            column("order", pa.string(), "order of re-embedding: hottest (see swap_texts) or random"),
            column("share", pa.float64(), "share of texts with new vectors"),
            column("texts", pa.int64(), "number of these texts"),
            column("recall_10", pa.float64(), "share of re-embedding's first 10, mean over held-out queries"),
            column("recall_100", pa.float64(), "share of its first 100"),
        ]
    ),
)

SWAP_VERDICT = Table(
    "swap_verdict",
    ("tenant",),
    "whether the mapped encoder is released",
    pa.schema(
        [
            TENANT,
            column("shipped", pa.string(), "mapped, or none if re-embedding is needed"),
            column("reason", pa.string(), "why"),
            column("method", pa.string(), "selected method"),
            column("setting", pa.string(), "its setting"),
            column("recall_10", pa.float64(), "share of re-embedding's first 10 on held-out queries", null=True),
            column("low", pa.float64(), _LOW, null=True),
            column("bounded_low", pa.float64(), "97.5 % lower bound for any distribution", null=True),
            column("min_share", pa.float64(), "share asked for with --min-share"),
            column("queries", pa.int64(), "number of held-out queries"),
            column("validation_queries", pa.int64(), "number of validation queries"),
            column("texts", pa.int64(), "texts that both encoders embedded"),
            column("index_texts", pa.int64(), "distinct texts of the index"),
        ]
    ),
)

MODEL_SWAP_TABLES = (SWAP_TEXTS, SWAP_TRIALS, SWAP_AGREEMENT, SWAP_QUALITY, SWAP_PARTIAL, SWAP_VERDICT)
