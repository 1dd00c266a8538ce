"""Tables of `judge distil`, in data order: pairs with the teacher's labels, held-out predictions, cascade bands."""

import pyarrow as pa

from darklode.schemas.table import CHUNK_ID, QUERY_ID, TENANT, Table, column

DISTILLED_PAIRS = Table(
    "distilled_pairs",
    ("tenant", "query_id", "chunk_id"),
    "pairs that a distilled judge is trained and measured on, with the teacher's verdict",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("part", pa.string(), "part of the pair's query: train, validation or test"),
            column("relevant", pa.bool_(), "the teacher's label"),
            column("target", pa.float32(), "probability of relevance to learn, 0 to 1"),
            column("people", pa.bool_(), "people's label", null=True),
            column("people_weight", pa.float64(), "number of pairs that people's label stands for", null=True),
            column("draws", pa.int32(), "times that the pair is drawn for training; 1 outside of it"),
            column("weight", pa.float32(), "weight of each draw, 1 / (pairs x probability of a draw)"),
        ]
    ),
)

DISTILLED_PREDICTIONS = Table(
    "distilled_predictions",
    ("tenant", "query_id", "chunk_id"),
    "a distilled judge on test queries, with calibration and threshold fitted to other test queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("logit", pa.float64(), "the model's output before calibration"),
            column("probability", pa.float64(), "calibrated probability of relevance"),
            column("relevant", pa.bool_(), "the distilled judge's label"),
            column("teacher", pa.bool_(), "the teacher's label"),
            column("people", pa.bool_(), "people's label", null=True),
        ]
    ),
)

CASCADE_BANDS = Table(
    "cascade_bands",
    ("tenant", "certainty"),
    "what a cascade would reach on test queries if pairs between `low` and `high` went to the teacher",
    pa.schema(
        [
            TENANT,
            column("certainty", pa.float64(), "probability from which on the small judge answers, .5 to 1"),
            column("low", pa.float64(), "probability up to which it answers not relevant; null: never", null=True),
            column("high", pa.float64(), "probability from which on it answers relevant; null: never", null=True),
            column("teacher_share", pa.float64(), "share of pairs judged by the teacher"),
            column("agreement", pa.float64(), "share of pairs with the teacher's label"),
            column(
                "kappa", pa.float64(), "Cohen's kappa of the cascade with the teacher; null if undefined", null=True
            ),
            column("people_kappa", pa.float64(), "kappa with people's labels; null without any", null=True),
            column(
                "fold_counts",
                pa.list_(pa.list_(pa.int64())),
                "per fold of the queries (up to five): true positives, false positives, false negatives and true "
                "negatives against the teacher's labels, and pairs judged by the teacher",
            ),
        ]
    ),
)

DISTIL_TABLES = (DISTILLED_PAIRS, DISTILLED_PREDICTIONS, CASCADE_BANDS)
