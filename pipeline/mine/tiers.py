"""Tiers small, median and large: nested random shares of the pairs (ScalingNote, Table 1).

Pairs are sampled, not queries: a few queries have most of the pairs, so sampling queries would make the tiers' sizes
random.
"""

N_HASH_VALUES = 2**64
"""Number of values of `md5_number_lower`: a hash divided by it is a random number from 0 to 1."""

MEDIAN_TIER_SHARE = 0.167  # ScalingNote, Table 1: 19.6 of 117.8 million pairs
SMALL_TIER_SHARE = 0.0076  # 0.9 of 117.8 million, all in median, too

TIERS = ("small", "median", "large")
"""Each tier contains the smaller ones."""


def tier_of(pair: str) -> str:
    """SQL of the smallest tier that contains a (query, positive), whatever its sources.

    Its parameters: `$seed`, `$n_hashes` (`N_HASH_VALUES`), and `$small` and `$median`, the tiers' shares of the pairs.

    Args:
        pair: SQL name of rows with tenant, query_id and positive_id.
    """
    key = f"{pair}.tenant, {pair}.query_id, {pair}.positive_id"
    random_sql = f"md5_number_lower(concat_ws(chr(0), $seed, 'tier', {key})) / $n_hashes"
    return f"CASE WHEN {random_sql} < $small THEN 'small' WHEN {random_sql} < $median THEN 'median' ELSE 'large' END"
