"""Labels that the judge itself doubts: without a probability, because the log-probabilities did not favor the label."""

import pyarrow as pa
import pyarrow.compute as pc

TIED_REASON = "relevant and not relevant are equally likely by the log-probabilities"
"""`no_probability` of a reply whose log-probabilities are tied."""

IS_DOUBTED_SQL = f"(contradicted OR no_probability = '{TIED_REASON}')"
"""SQL over `verdicts`: true for doubted labels, false or null for others."""

LIKELIHOOD_SQL = f"coalesce(probability, CASE WHEN {IS_DOUBTED_SQL} THEN CAST(0 AS FLOAT) END)"
"""SQL over `verdicts`: the value compared with a minimum probability; 0 if doubted, null if unknown."""


def is_doubtful(replies: pa.Table) -> pa.ChunkedArray:
    """Which labels are doubted; never null.

    Args:
        replies: with the columns contradicted and no_probability.
    """
    tied = pc.equal(replies["no_probability"], TIED_REASON)
    return pc.or_(pc.fill_null(replies["contradicted"], False), pc.fill_null(tied, False))
