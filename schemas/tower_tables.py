"""The tables of `train-towers`: of stage II how a student came near its teacher, of stage I how both towers learned."""

import pyarrow as pa

from darklode.schemas.adaptation_tables import INDEX, TRIAL
from darklode.schemas.table import QUERY_ID, STRINGS, TENANT, Table, field

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
            field("query", pa.string(), "the query's text"),
            field("positive_id", pa.string(), "chunk_id of the positive; doc_id where it was mined from a log"),
            field("title", pa.string(), f"the positive's; {_TITLE}", null=True),
            field("content", pa.string(), _CONTENT),
            field(
                "negative_id", pa.string(), "a hard negative, drawn from the triplet's; null: it has none", null=True
            ),
            field("negative_title", pa.string(), f"its title; {_TITLE}", null=True),
            field("negative_content", pa.string(), _CONTENT, null=True),
            field("key", pa.string(), "hash of the positive's words: copies share it"),
            field("answers", STRINGS, "the same of all positives of the query, which are no negatives of it"),
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
            field("step", pa.int32(), "steps done; 0: as the towers begin"),
            field(
                "contrastive", pa.float64(), "mean L^con since the row before; null before the first step", null=True
            ),
            field("margin", pa.float64(), "mean L^hard since the row before", null=True),
            field("validation", pa.float64(), "mean reciprocal rank of the first positive among some texts, 0 to 1"),
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
            field("learning_rate", pa.float64(), "the highest"),
            field("temperature", pa.float64(), "τ"),
            field("step", pa.int32(), "the step whose weights were kept"),
            field("validation", pa.float64(), "mean reciprocal rank of the first positive among some texts, 0 to 1"),
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
