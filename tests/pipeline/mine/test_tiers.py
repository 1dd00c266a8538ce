"""Tiers as shares of the pairs, drawn once and for all."""

import duckdb
import pytest

from darklode.pipeline.mine.tiers import N_HASH_VALUES, TIERS, tier_of


def tiers(pairs: int, seed: int, **shares: float) -> list[str]:
    """The tier of each of so many pairs, ten a query."""
    asked = f"(SELECT 't' AS tenant, range // 10 AS query_id, range AS positive_id FROM range({pairs})) q"
    with duckdb.connect() as connection:
        given = {"seed": seed, "n_hashes": N_HASH_VALUES} | shares
        rows = connection.execute(f"SELECT {tier_of('q')} FROM {asked}", given).fetchall()
    return [tier for (tier,) in rows]


def test_tiers_have_their_shares_of_the_pairs() -> None:
    found = tiers(20_000, 13, small=0.05, median=0.2)
    assert [found.count(tier) / 20_000 for tier in TIERS] == pytest.approx([0.05, 0.15, 0.8], abs=0.01)


def test_a_larger_share_keeps_what_a_smaller_one_holds_and_another_seed_draws_others() -> None:
    first, second = tiers(2_000, 13, small=0.05, median=0.2), tiers(2_000, 13, small=0.1, median=0.3)
    assert all(TIERS.index(after) <= TIERS.index(before) for before, after in zip(first, second, strict=True))
    assert tiers(2_000, 14, small=0.05, median=0.2) != first
