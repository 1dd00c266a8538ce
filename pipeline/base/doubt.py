"""Verdicts whose judge doubts its own label: it has no probability because the log-probabilities did not favour it."""

import pyarrow as pa
import pyarrow.compute as pc

TIED = "relevant and not relevant are equally likely by the log-probabilities"
"""`no_probability` of a reply whose log-probabilities favour neither side."""

DOUBTED = f"(contradicted OR no_probability = '{TIED}')"
"""SQL of `verdicts`: true of such a label, false or null of others."""

LIKELIHOOD = f"coalesce(probability, CASE WHEN {DOUBTED} THEN CAST(0 AS FLOAT) END)"
"""SQL of `verdicts`: what is held against a minimum: 0 where the label is doubted, null where nothing is known."""


def is_doubtful(replies: pa.Table) -> pa.ChunkedArray:
    """Which labels are; never null.

    Args:
        replies: has the columns contradicted and no_probability.
    """
    tied = pc.equal(replies["no_probability"], TIED)
    return pc.or_(pc.fill_null(replies["contradicted"], False), pc.fill_null(tied, False))
