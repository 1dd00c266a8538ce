"""The stage `mined_pairs`: pairs from evidence and associations, updated incrementally.

A nightly run recomputes only queries with new evidence, and queries that borrow from one whose own pairs changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import duckdb

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, digest, key_of
from darklode.pipeline.base.artifacts.output import RESULT_ROWS
from darklode.pipeline.base.artifacts.tables import pieces
from darklode.pipeline.base.relations import Relation, drop, materialize, view
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.pipeline.mine.days import digests
from darklode.pipeline.mine.incremental_write import COLUMNS, write_all, write_changes
from darklode.pipeline.mine.multi_hop import find_loans, multi_hop
from darklode.pipeline.mine.one_hop import OneHop, OneHopPairs
from darklode.schemas.mined_tables import MINED_PAIRS
from darklode.schemas.mining import Merge, MiningSettings

PAIRS_STAGE = Stage(
    "mined_pairs",
    4,
    ("click_evidence", "click_prior", "log_queries", "relevance_evidence", "associations"),
    MINED_PAIRS.files,
)


PATCH_SHARE = 0.05  # smaller changes become a patch file: rewriting a large day every night is slower


def mined_pairs(  # noqa: PLR0913 (tables, rules, and where to run)
    tables: Tables,
    output: Output,
    hop: OneHop,
    mining: MiningSettings,
    *,
    max_associations: int,
    contains: Mapping[str, Sequence[str]],
    spread: Spread = here,
) -> None:
    """Write each query's pairs from clicks and relevance, one-hop and multi-hop.

    Pairs of unaffected queries are kept; the result equals that of a full recomputation.

    Args:
        tables: inputs of the stage.
        output: `mined_pairs`, one partition per day, and its patch.
        hop: makes one-hop pairs.
        mining: how sources are merged, and when a day's files are rewritten.
        max_associations: maximum lenders per query and kind; 0: all.
        contains: by day, fingerprints of earlier versions of its evidence of which the present version lost no rows.
        spread: where a full recomputation runs.
    """
    days, mark = tables.by_day("click_evidence"), output.unit_key("all", digest(tables.parts("click_prior")))
    read = digests(days)
    facts = output.earlier_facts
    earlier_pairs = output.previous_tables("mined_pairs") if facts.get("mark") == mark else None
    news = None if earlier_pairs is None else find_changed_evidence(facts["read"], read, contains)
    with tables.connect() as connection:
        if earlier_pairs is None or news is None:
            write_all(
                connection,
                output,
                _all_pairs(connection, tables, output, PairSettings(hop, max_associations, mining.merge, spread)),
            )
        else:
            new = tables.with_parts("click_evidence", [part for day in news.days for part in days[day]])
            delta = view(connection, new, "click_evidence")
            query_relation, own = touched_queries(
                connection, delta, view(connection, earlier_pairs, "mined_pairs"), news, hop
            )
            pairs = _pairs(connection, query_relation, replace(hop, previous=own), max_associations, mining.merge)
            write_changes(
                connection, output, earlier_pairs, recomputed_queries=query_relation, pairs=pairs, share=PATCH_SHARE
            )
    output.facts |= {"mark": mark, "read": read}
    rows = output.rows("mined_pairs")
    output.count(FunnelStep("mined_pairs", "queries", tables.rows("log_queries"), "pairs", rows))


SHARD_QUERIES = 1 << 12
"""Minimum number of queries in a shard: each shard reads the tables."""


class PairSettings(NamedTuple):
    """Settings of a full recomputation."""

    hop: OneHop
    max_associations: int
    merge: Merge
    spread: Spread


@dataclass(frozen=True)
class PairShard:
    """Shard `shard` (from 1) of `shards`: a contiguous share of the queries, ordered by tenant and query_id."""

    tables: Tables
    hop: OneHop
    max_associations: int
    merge: Merge
    shard: int
    shards: int
    folder: str

    @property
    def name(self) -> str:
        return f"mined_pairs {self.shard} of {self.shards}"


def make_pairs(shard: PairShard) -> Pieces:
    """All pairs of a shard's queries, in undefined order."""
    with shard.tables.connect() as connection:
        parameters = {"before": shard.hop.before, "shard": shard.shard, "shards": shard.shards}
        pairs = _pairs(
            connection, materialize(connection, SHARE, parameters), shard.hop, shard.max_associations, shard.merge
        )
        yield from pieces(connection, f"SELECT {COLUMNS} FROM {pairs}", {}, RESULT_ROWS)


def _all_pairs(
    connection: duckdb.DuckDBPyConnection, tables: Tables, output: Output, settings: PairSettings
) -> Relation:
    """The pairs of all queries, computed in shards where `spread` allows."""
    hop, max_associations, merge, spread = settings
    shards = min(spread.places, tables.rows("log_queries") // SHARD_QUERIES)
    if shards < 2:
        return _pairs(connection, all_queries(connection, hop), hop, max_associations, merge)
    contents = key_of(*(tables.content(table) for table in PAIRS_STAGE.reads))
    folders = [f"progress/{PAIRS_STAGE.name}/{output.unit_key(f'{n} of {shards}', contents)}" for n in range(shards)]
    pair_shards = [
        PairShard(tables, hop, max_associations, merge, n + 1, shards, folder) for n, folder in enumerate(folders)
    ]
    connection.register("piece", MINED_PAIRS.empty())
    pieces = materialize(connection, f"SELECT {COLUMNS} FROM piece")
    for rows in chain.from_iterable(spread(make_pairs, pair_shards)):
        connection.register("piece", rows)
        connection.execute(f"INSERT INTO {pieces} SELECT {COLUMNS} FROM piece")
    connection.unregister("piece")
    return pieces


def _pairs(
    connection: duckdb.DuckDBPyConnection, query_relation: Relation, hop: OneHop, max_associations: int, merge: Merge
) -> Relation:
    """All pairs of the given queries."""
    loans = find_loans(connection, query_relation, before=hop.before)
    return multi_hop(connection, query_relation, loans, hop, max_associations=max_associations, merge=merge)


ALL_QUERIES = "SELECT tenant, query_id FROM log_queries WHERE date < CAST($before AS DATE)"

SHARE = """
    SELECT tenant, query_id FROM (
        SELECT tenant, query_id, ntile($shards) OVER (ORDER BY tenant, query_id) AS shard
        FROM log_queries WHERE date < CAST($before AS DATE)
    ) WHERE shard = $shard
"""

SEEN = "SELECT DISTINCT tenant, query_id FROM {delta} WHERE date < CAST($before AS DATE)"

# A lender changed if its positives changed, or the first day it lends them: a late day can predate a query's first day.
CHANGED = """
    WITH before AS (
        SELECT tenant, query_id, positive_id, date
        FROM {earlier} SEMI JOIN {seen} USING (tenant, query_id) WHERE source = 'click_one_hop'
    ), differ AS (
        (SELECT tenant, query_id, positive_id, date FROM {click} EXCEPT FROM before)
        UNION ALL
        (FROM before EXCEPT SELECT tenant, query_id, positive_id, date FROM {click})
    )
    SELECT DISTINCT tenant, query_id FROM (
        SELECT tenant, query_id FROM differ
        UNION ALL
        SELECT tenant, query_id FROM log_queries WHERE list_contains($days, CAST(date AS VARCHAR))
    )
"""

# A borrowed negative is the lender's own negative, unless it contradicts a positive of the borrower: then any exposure
# of the lender may matter.
TOUCHED = """
    WITH drawn AS (
        SELECT tenant, query_id AS via_query_id, positive_id, 'click_multi_hop' AS source, negative_id FROM {click}
        UNION ALL
        SELECT tenant, query_id, positive_id, 'relevance_multi_hop', negative_id FROM {relevance}
    )
    SELECT tenant, query_id FROM (
        SELECT tenant, query_id FROM {seen}
        UNION
        SELECT DISTINCT a.tenant, a.query_id FROM associations a SEMI JOIN {changed} c
          ON c.tenant = a.tenant AND c.query_id = a.associated_query_id
        UNION
        SELECT tenant, e.query_id FROM {earlier} e JOIN drawn d USING (tenant, via_query_id, positive_id, source)
        WHERE e.negative_id IS DISTINCT FROM d.negative_id
    ) SEMI JOIN (FROM log_queries WHERE date < CAST($before AS DATE)) USING (tenant, query_id)
"""


@dataclass(frozen=True)
class ChangedEvidence:
    """Days that are new, or whose evidence grew, since the pairs were last made."""

    days: tuple[str, ...]


def find_changed_evidence(
    before: Mapping[str, str], now: Mapping[str, str], contains: Mapping[str, Sequence[str]]
) -> ChangedEvidence | None:
    """Compare the days' fingerprints; None if evidence disappeared, so that all pairs must be recomputed.

    Args:
        before: fingerprint of each day's evidence when the pairs were last made.
        now: present fingerprints.
        contains: by day, fingerprints of earlier versions of which the present one lost no rows.
    """
    lost = [day for day, digest in before.items() if now.get(day) != digest and digest not in contains.get(day, ())]
    return None if lost else ChangedEvidence(tuple(day for day, digest in now.items() if before.get(day) != digest))


def all_queries(connection: duckdb.DuckDBPyConnection, hop: OneHop) -> Relation:
    """All queries before the test period: tenant and query_id."""
    return materialize(connection, ALL_QUERIES, {"before": hop.before})


def touched_queries(
    connection: duckdb.DuckDBPyConnection, delta: Relation, earlier: Relation, news: ChangedEvidence, hop: OneHop
) -> tuple[Relation, OneHopPairs]:
    """Queries whose pairs may have changed (tenant, query_id; may include unchanged ones), and their one-hop pairs.

    One-hop pairs of queries with new evidence are returned so that they are not computed twice.

    Args:
        connection: with the tables that `hop` reads, and associations.
        delta: `click_evidence` of the days in `news`.
        earlier: the pairs of the last run.
        news: what changed since.
        hop: makes one-hop pairs, to detect lenders whose pairs changed.
    """
    seen_queries = materialize(connection, SEEN, {"before": hop.before}, delta=delta)
    one_hop_pairs = hop.pairs(connection, seen_queries)
    days = {"days": list(news.days)}
    changed = materialize(connection, CHANGED, days, earlier=earlier, seen=seen_queries, click=one_hop_pairs.click)
    before = {"before": hop.before}
    touched_relation = materialize(
        connection, TOUCHED, before, seen=seen_queries, changed=changed, earlier=earlier, **one_hop_pairs._asdict()
    )
    drop(connection, changed)
    return touched_relation, one_hop_pairs
