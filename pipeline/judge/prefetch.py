"""Prefetching of verdicts in shards: replies go into the ledger as they arrive, where the stage finds them.

Pairs that a shard did not request, because its share of a limit was used up, are requested by the stage itself under
the whole limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Tables, key_of
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import LimitReached
from darklode.pipeline.base.memory.parts import resolve_cache
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.base.sharding import Pieces, Spread, count_shards, split_evenly
from darklode.pipeline.judge.factory import members
from darklode.pipeline.judge.kinds import LedgerKind
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.pairs import pool_pairs
from darklode.pipeline.judge.panel import Panel, Vote
from darklode.pipeline.judge.port import QUERY_BLOCK
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.settings import CacheSettings

_QUERY_BLOCKS_SQL = f"""
    SELECT tenant, (number - 1) // {QUERY_BLOCK} AS block, sum(pairs)::BIGINT AS pairs FROM (
        SELECT tenant, row_number() OVER (PARTITION BY tenant ORDER BY query_id) AS number, count(*) AS pairs
        FROM pool GROUP BY tenant, query_id
    ) GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True)
class JudgingShard:
    """One shard of the prefetching: blocks of queries, and the judges of their pairs.

    Attributes:
        tables: must contain `queries`, `chunks` and `pool`.
        blocks: ranges of blocks, as (tenant, first block, end block); the end is excluded.
        judges: settings of the judges, each with its portion of the shared limits.
        cache: location of the ledger.
    """

    tables: Tables
    blocks: tuple[tuple[str, int, int], ...]
    judges: tuple[LedgerKind, ...]
    cache: CacheSettings

    @property
    def name(self) -> str:
        """Name for progress messages."""
        tenant, first, last = self.blocks[0]
        return f"judge {tenant} blocks {first} to {last - 1} and {len(self.blocks) - 1} more"

    @property
    def folder(self) -> str:
        """Folder of the shard's result; its name is a hash of everything that can change the result."""
        settings = [section.model_dump(mode="json") for section in (*self.judges, self.cache)]
        contents = [self.tables.content(table) for table in ("queries", "chunks", "pool")]
        return f"progress/judge/{key_of(settings, self.blocks, contents)}"


def prefetch_verdicts(
    tables: Tables, output: Output, settings: JudgeSettings, cache: CacheSettings, spread: Spread
) -> int:
    """Fill the ledger with the replies of all remote judges to all pairs of the pool.

    Args:
        tables: must contain `queries`, `chunks` and `pool`.
        output: receives progress.
        settings: settings of the judge and its panel.
        cache: location of the ledger.
        spread: where the shards run.

    Returns:
        Number of replies added to the ledger.
    """
    judges = [member for member in members(settings) if isinstance(member, LedgerKind)]
    done = Counter[str]()
    total = tables.rows("pool")
    shards = _make_shards(tables, judges, resolve_cache(cache), spread.places) if judges else []
    for pieces in spread(judge_shard, shards):
        for piece in pieces:
            done.update(piece.to_pylist()[0])
            output.progress(done["pairs"], total, "judging on the cluster")
    return done["asked"]


def judge_shard(shard: JudgingShard) -> Pieces:
    """Judge a shard's pairs into the ledger, block by block; yields the numbers of pairs and of calls."""
    ledger = Ledger(shard.cache.root)
    judges = [
        LedgerJudge(judge_kind.source(shard.cache), ledger, judge_kind.max_attempts_in_all())
        for judge_kind in shard.judges
    ]
    panel = Panel(judges, Vote("mean", (1.0,) * len(judges), 0.5))  # runs the judges together; its vote is not used
    n_pairs = 0
    with Background() as background:
        try:
            _ = panel.member_ids  # may wait for a server, which must not happen in the event loop's thread
            for tenant, first, last in shard.blocks:
                with pool_pairs(shard.tables, TenantChunks(shard.tables, tenant)) as pool:
                    for block in pool.blocks(first, last):
                        background.run(panel.each(block), lambda: None)
                        n_pairs += block.num_rows
        except LimitReached:  # the stage continues under the whole limit
            pass
    yield pa.table({"pairs": [n_pairs], "asked": [sum(judge.n_requested for judge in judges)]})


def _make_shards(tables: Tables, judges: Sequence[LedgerKind], cache: CacheSettings, places: int) -> list[JudgingShard]:
    """Divide the pool's blocks into shards, and give each its share of the judges' limits."""
    blocks = tables.sql(_QUERY_BLOCKS_SQL).to_pylist()
    count = count_shards(
        len(blocks),
        places,
        min((judge_kind.max_workers for judge_kind in judges if judge_kind.max_workers), default=None),
    )
    total = sum(block["pairs"] for block in blocks)
    shards = []
    for first, last in split_evenly(len(blocks), count):
        own_blocks = blocks[first:last]
        share = sum(block["pairs"] for block in own_blocks) / total
        shard_judges = tuple(judge_kind.portion(cache, share, min(places, count)) for judge_kind in judges)
        shards.append(JudgingShard(tables, _merge_blocks(own_blocks), shard_judges, cache))
    return shards


def _merge_blocks(blocks: Sequence[dict[str, object]]) -> tuple[tuple[str, int, int], ...]:
    """Merge adjacent blocks of a tenant."""
    blocks_of_tenant: dict[str, list[int]] = {}
    for block in blocks:
        blocks_of_tenant.setdefault(str(block["tenant"]), []).append(int(str(block["block"])))
    return tuple((tenant, min(indices), max(indices) + 1) for tenant, indices in blocks_of_tenant.items())
