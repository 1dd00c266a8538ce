"""Tiers small, median and large: nested shares of the queries, drawn once and for all (ScalingNote, Table 1)."""

LOTS = 2**64

TIERS = ("small", "median", "large")
"""Each holds those before it."""


def tier_of(query: str) -> str:
    """SQL for the smallest tier that holds a query.

    Its parameters are `$seed`, `$lots` (`LOTS`), `$small` and `$median`: the seed, and the tiers' shares of queries.

    Args:
        query: SQL name of rows with tenant and query_id.
    """
    lot = f"md5_number_lower(concat_ws(chr(0), $seed, 'tier', {query}.tenant, {query}.query_id)) / $lots"
    return f"CASE WHEN {lot} < $small THEN 'small' WHEN {lot} < $median THEN 'median' ELSE 'large' END"
