"""The tables of `train-towers`: of stage II how a student came near its teacher, of stage I how both towers learned."""

import pyarrow as pa

from darklode.schemas.adaptation_tables import INDEX, TRIAL
from darklode.schemas.table import QUERY_ID, STRINGS, TENANT, Table, column

TOWER_QUERIES = Table(
    "tower_queries",
    ("tenant", "query"),
    "the queries that a query tower learns from, is looked at with and tested on",
    pa.schema(
        [
            TENANT,
            column("query", pa.string(), "its text, each once"),
            INDEX,
            column(
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
            column("step", pa.int32(), "steps done; 0: as the student begins"),
            column(
                "squared", pa.float64(), "mean ‖q − s‖² since the row before; null before the first step", null=True
            ),
            column("cosine", pa.float64(), "mean 1 − cos(q, s) since the row before", null=True),
            column("distance", pa.float64(), "mean ‖q − s‖ on the validation queries"),
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
            column("learning_rate", pa.float64(), "the highest"),
            column("step", pa.int32(), "the step whose weights were kept"),
            column("distance", pa.float64(), "mean ‖q − s‖ on the validation queries"),
        ]
    ),
)

TOWER_HEALTH = Table(
    "tower_health",
    ("split",),
    "how near the student is to its teacher (ScalingNote, Proposition 3.2), and what it finds of its teacher's lists",
    pa.schema(
        [
            column("split", pa.string(), "which queries, as in `tower_queries`"),
            column("queries", pa.int64(), "how many"),
            column("distance", pa.float64(), "mean ‖q − s‖ of unit vectors: 0 to 2"),
            column("distance_p95", pa.float64(), "95 of 100 queries are as near"),
            column("overlap", pa.float64(), "texts of the teacher's first ten that are among the student's, 0 to 1"),
        ]
    ),
)

_TITLE, _CONTENT = "null where there is none", "its topic, headings and text, one a line"

TOWER_TRIPLETS = Table(
    "tower_triplets",
    ("tenant", "query_id", "positive_id"),
    "what both towers learn from, in an order that is drawn once; each run's rows together",
    pa.schema(
        [
            TENANT,
            INDEX,
            QUERY_ID,
            column("query", pa.string(), "the query's text"),
            column("positive_id", pa.string(), "chunk_id of the positive; doc_id where it was mined from a log"),
            column("title", pa.string(), f"the positive's; {_TITLE}", null=True),
            column("content", pa.string(), _CONTENT),
            column(
                "negative_id", pa.string(), "a hard negative, drawn from the triplet's; null: it has none", null=True
            ),
            column("negative_title", pa.string(), f"its title; {_TITLE}", null=True),
            column("negative_content", pa.string(), _CONTENT, null=True),
            column("key", pa.string(), "hash of the positive's words: copies share it"),
            column("answers", STRINGS, "the same of all positives of the query, which are no negatives of it"),
        ]
    ),
)

DUAL_LOG = Table(
    "dual_log",
    ("trial", "step"),
    "how each trial of both towers went",
    pa.schema(
        [
            TRIAL,
            column("step", pa.int32(), "steps done; 0: as the towers begin"),
            column(
                "contrastive", pa.float64(), "mean L^con since the row before; null before the first step", null=True
            ),
            column("margin", pa.float64(), "mean L^hard since the row before", null=True),
            column("validation", pa.float64(), "mean reciprocal rank of the first positive among some texts, 0 to 1"),
        ]
    ),
)

DUAL_TRIALS = Table(
    "dual_trials",
    ("trial",),
    "what was tried of both towers, and what it reached on validation queries",
    pa.schema(
        [
            TRIAL,
            column("learning_rate", pa.float64(), "the highest"),
            column("temperature", pa.float64(), "τ"),
            column("step", pa.int32(), "the step whose weights were kept"),
            column("validation", pa.float64(), "mean reciprocal rank of the first positive among some texts, 0 to 1"),
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
