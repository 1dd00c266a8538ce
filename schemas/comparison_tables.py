"""Tables of `adapt compare`: rankings, measures per query, and differences."""

import pyarrow as pa

from darklode.schemas.table import CLUSTER_INTERVAL, QUERY_ID, TENANT, Table, column

SEED = column("seed", pa.int32(), "random seed, from 0")
RIVAL = column("system", pa.string(), "base, a method, a control, or an upper bound")

COMPARISON_LISTS = Table(
    "comparison_lists",
    ("tenant", "system", "seed", "query_id", "rank"),
    "rankings of each system of `adapt compare` for each test query, at most 100 texts",
    pa.schema(
        [
            TENANT,
            RIVAL,
            SEED,
            QUERY_ID,
            column("rank", pa.int32(), "rank, from 1"),
            column("text_id", pa.string(), "as in `adaptation_texts`"),
        ]
    ),
)

COMPARISON_QUERIES = Table(
    "comparison_queries",
    ("tenant", "system", "seed", "query_id", "measure"),
    "measures of each system of `adapt compare` per test query",
    pa.schema(
        [
            TENANT,
            RIVAL,
            SEED,
            QUERY_ID,
            column("measure", pa.string(), "name in ir_measures"),
            column("value", pa.float64(), "value, 0 to 1"),
        ]
    ),
)

COMPARISON = Table(
    "comparison",
    ("part", "system", "measure"),
    "systems of `adapt compare` against the base: mean over seeds per query, then over queries",
    pa.schema(
        [
            column("part", pa.string(), "part of the test queries, as in `evaluation`"),
            RIVAL,
            column("measure", pa.string(), "name in ir_measures"),
            column("value", pa.float64(), "mean over queries, 0 to 1"),
            column("ceiling", pa.float64(), "value of an ideal ranking"),
            column("difference", pa.float64(), "value minus the base's; null for the base and for Judged", null=True),
            *CLUSTER_INTERVAL,
            column("p", pa.float64(), "two-sided p-value of a sign-flip test over clusters", null=True),
            column(
                "p_holm",
                pa.float64(),
                "p-value with Holm correction over all systems and measures of the part",
                null=True,
            ),
            column(
                "over_control",
                pa.float64(),
                "value minus that of the shuffled-labels control, i.e. the contribution of the labels; null if none",
                null=True,
            ),
            column("over_low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters", null=True),
            column("over_high", pa.float64(), "upper end", null=True),
            column("over_p", pa.float64(), "two-sided p-value of that difference, uncorrected", null=True),
            column("seeds", pa.int32(), "number of training seeds; 1 if deterministic"),
            column("queries", pa.int64(), "number of queries"),
            column("clusters", pa.int64(), "clusters of near-duplicates among them"),
        ]
    ),
)

COMPARISON_TABLES = (COMPARISON_LISTS, COMPARISON_QUERIES, COMPARISON)
