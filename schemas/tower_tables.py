"""The tables of `train-towers`, in data order: the queries, how a student came near its teacher, how near it is."""

import pyarrow as pa

from darklode.schemas.adaptation_tables import INDEX, TRIAL
from darklode.schemas.table import TENANT, Table, field

TOWER_QUERIES = Table(
    "tower_queries",
    ("tenant", "query"),
    "the queries that a query tower learns from, is looked at with and tested on",
    pa.schema(
        [
            TENANT,
            field("query", pa.string(), "its text, each once"),
            INDEX,
            field(
                "split",
                pa.string(),
                "test: a run tests with it; validation: looked at in training; unseen: nothing sees it before the end; "
                "train",
            ),
        ]
    ),
)

DISTILLATION_LOG = Table(
    "distillation_log",
    ("trial", "step"),
    "how each trial went",
    pa.schema(
        [
            TRIAL,
            field("step", pa.int32(), "steps done; 0: as the student begins"),
            field("squared", pa.float64(), "mean ‖q − s‖² since the row before; null before the first step", null=True),
            field("cosine", pa.float64(), "mean 1 − cos(q, s) since the row before", null=True),
            field("distance", pa.float64(), "mean ‖q − s‖ on the validation queries"),
        ]
    ),
)

DISTILLATION_TRIALS = Table(
    "distillation_trials",
    ("trial",),
    "what was tried, and how near it came",
    pa.schema(
        [
            TRIAL,
            field("learning_rate", pa.float64(), "the highest"),
            field("step", pa.int32(), "the step whose weights were kept"),
            field("distance", pa.float64(), "mean ‖q − s‖ on the validation queries"),
        ]
    ),
)

TOWER_HEALTH = Table(
    "tower_health",
    ("split",),
    "how near the student is to its teacher (ScalingNote, Proposition 3.2), and what it finds of its teacher's lists",
    pa.schema(
        [
            field("split", pa.string(), "which queries, as in `tower_queries`"),
            field("queries", pa.int64(), "how many"),
            field("distance", pa.float64(), "mean ‖q − s‖ of unit vectors: 0 to 2"),
            field("distance_p95", pa.float64(), "95 of 100 queries are as near"),
            field("overlap", pa.float64(), "texts of the teacher's first ten that are among the student's, 0 to 1"),
        ]
    ),
)

TOWER_TABLES = (TOWER_QUERIES, DISTILLATION_LOG, DISTILLATION_TRIALS, TOWER_HEALTH)
