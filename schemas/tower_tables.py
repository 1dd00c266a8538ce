"""Tables of `train-towers`: distillation of a student (stage II) and joint training of both towers (stage I)."""

import pyarrow as pa

from darklode.schemas.adaptation_tables import INDEX, TRIAL
from darklode.schemas.table import QUERY_ID, STRINGS, TENANT, Table, column

TOWER_QUERIES = Table(
    "tower_queries",
    ("tenant", "query"),
    "queries and passages for training, validation and test of a student",
    pa.schema(
        [
            TENANT,
            column("query", pa.string(), "text of the query or passage, distinct"),
            INDEX,
            column(
                "source", pa.string(), "queries: of a run; file: of `--queries`; documents: passage of a run's texts"
            ),
            column(
                "split",
                pa.string(),
                "train; validation: evaluated in training; unseen: of the held-out source or clusters, evaluated at "
                "the end; test: test query of a run",
            ),
        ]
    ),
)

DISTILLATION_LOG = Table(
    "distillation_log",
    ("trial", "step"),
    "training log of each trial",
    pa.schema(
        [
            TRIAL,
            column("step", pa.int32(), "training step; 0: initial student"),
            column("squared", pa.float64(), "mean ‖q − s‖² since the previous row; null at step 0", null=True),
            column("cosine", pa.float64(), "mean 1 − cos(q, s) since the previous row", null=True),
            column("distance", pa.float64(), "mean ‖q − s‖ on the validation queries"),
        ]
    ),
)

DISTILLATION_TRIALS = Table(
    "distillation_trials",
    ("trial",),
    "trials of the distillation",
    pa.schema(
        [
            TRIAL,
            column("learning_rate", pa.float64(), "peak learning rate"),
            column("step", pa.int32(), "step of the selected weights"),
            column("distance", pa.float64(), "mean ‖q − s‖ on the validation queries"),
        ]
    ),
)

TOWER_HEALTH = Table(
    "tower_health",
    ("split",),
    "distance of student and teacher (ScalingNote, Proposition 3.2) and overlap of their top tens",
    pa.schema(
        [
            column("split", pa.string(), "split, as in `tower_queries`"),
            column("queries", pa.int64(), "number of queries"),
            column("distance", pa.float64(), "mean ‖q − s‖ of unit vectors, 0 to 2"),
            column("distance_p95", pa.float64(), "95th percentile of the distance"),
            column("overlap", pa.float64(), "share of the teacher's top ten in the student's, 0 to 1"),
            column("top_100", pa.float64(), "share of the teacher's top ten in the student's top 100, 0 to 1"),
        ]
    ),
)

_TITLE, _CONTENT = "null if none", "topic, headings and text, on separate lines"

TOWER_TRIPLETS = Table(
    "tower_triplets",
    ("tenant", "query_id", "positive_id"),
    "training triplets of both towers, shuffled once within each run",
    pa.schema(
        [
            TENANT,
            INDEX,
            QUERY_ID,
            column("query", pa.string(), "text of the query"),
            column("positive_id", pa.string(), "chunk_id of the positive; doc_id in a mined run"),
            column("title", pa.string(), f"title of the positive; {_TITLE}", null=True),
            column("content", pa.string(), _CONTENT),
            column("negative_id", pa.string(), "hard negative sampled from the triplet; null if none", null=True),
            column("negative_title", pa.string(), f"title of the negative; {_TITLE}", null=True),
            column("negative_content", pa.string(), _CONTENT, null=True),
            column("key", pa.string(), "hash of the positive's words; duplicates share it"),
            column("answers", STRINGS, "keys of all positives of the query, excluded from its in-batch negatives"),
            column(
                "weight",
                pa.float32(),
                "weight of the pair's losses, above 0 to 1, as in `adaptation_labels`",
            ),
        ]
    ),
)

DUAL_LOG = Table(
    "dual_log",
    ("trial", "step"),
    "training log of both towers",
    pa.schema(
        [
            TRIAL,
            column("step", pa.int32(), "training step; 0: initial towers"),
            column("contrastive", pa.float64(), "mean L^con since the previous row; null at step 0", null=True),
            column("margin", pa.float64(), "mean L^hard since the previous row", null=True),
            column("validation", pa.float64(), "MRR of the first positive among a sample of texts, 0 to 1"),
        ]
    ),
)

DUAL_TRIALS = Table(
    "dual_trials",
    ("trial",),
    "trials of both towers, with their validation results",
    pa.schema(
        [
            TRIAL,
            column("learning_rate", pa.float64(), "peak learning rate"),
            column("temperature", pa.float64(), "temperature τ"),
            column("step", pa.int32(), "step of the selected weights"),
            column("validation", pa.float64(), "MRR of the first positive among a sample of texts, 0 to 1"),
        ]
    ),
)

TOWER_TABLES = (
    TOWER_QUERIES,
    DISTILLATION_LOG,
    DISTILLATION_TRIALS,
    TOWER_HEALTH,
    TOWER_TRIPLETS,
    DUAL_LOG,
    DUAL_TRIALS,
)
