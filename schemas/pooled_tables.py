"""Tables of `darklode adapt --pool-tenants`."""

import pyarrow as pa

from darklode.schemas.table import TENANT, Table, column

POOLED_HEAD = Table(
    "pooled_head",
    ("row",),
    "map of the head that all tenants share (`--pool-tenants`); a tenant's own has an offset from it",
    pa.schema(
        [
            column("row", pa.int32(), "row of the matrix, from 0"),
            column("weights", pa.list_(pa.float32()), "values; query vectors are multiplied and normalized"),
        ]
    ),
)

POOLED_TRIALS = Table(
    "pooled_trials",
    ("power", "ridge", "round", "offset_ridge"),
    "candidates for the pooled head, on the validation queries of all tenants",
    pa.schema(
        [
            column("power", pa.float64(), "power of the covariance of texts and queries that the head starts with"),
            column("ridge", pa.float64(), "ridge penalty of the shared head; 0: the start itself"),
            column("round", pa.int32(), "number of ridge regressions in a row"),
            column(
                "offset_ridge",
                pa.float64(),
                "penalty of each tenant's offset from the shared head; null: no offset",
                null=True,
            ),
            column("validation", pa.float64(), "nDCG@10, mean over queries"),
            column("queries", pa.int64(), "number of these queries"),
        ]
    ),
)

POOLED_TENANTS = Table(
    "pooled_tenants",
    ("tenant",),
    "test of the pooled head for each tenant (`--pool-tenants`)",
    pa.schema(
        [
            TENANT,
            column("folder", pa.string(), "subfolder of its adapter"),
            column("released", pa.bool_(), "true if the pooled head is released for it; false also if its own head is"),
            column("pairs", pa.int64(), "its training pairs in the pooled head"),
            column("clusters", pa.int64(), "its test clusters that share no positive with training"),
            column(
                "difference",
                pa.float64(),
                "mean difference in nDCG@10 to the base over these clusters; null without clusters",
                null=True,
            ),
            column(
                "expected",
                pa.float64(),
                "estimate of the true lift from all tenants' tests; null with fewer than 10 tested tenants",
                null=True,
            ),
            column("low", pa.float64(), "lower end of its 95 % interval", null=True),
            column("loss_probability", pa.float64(), "probability that the true lift is not above 0", null=True),
        ]
    ),
)
