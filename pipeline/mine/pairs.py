"""From evidence and associations to pairs: a night looks again only at the queries that its evidence touched.

These are the queries with new evidence, and those that borrow from one whose own pairs changed.
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
from darklode.pipeline.mine.multi_hop import loans_to, multi_hop
from darklode.pipeline.mine.one_hop import OneHop, OneHopPairs
from darklode.schemas.mined_tables import MINED_PAIRS
from darklode.schemas.mining import Merge, MiningSettings

PAIRS_STAGE = Stage(
    "mined_pairs",
    4,
    ("click_evidence", "click_prior", "log_queries", "relevance_evidence", "associations"),
    MINED_PAIRS.files,
)


def mined_pairs(  # noqa: PLR0913 (what is paired, by what rules, and where)
    tables: Tables,
    output: Output,
    hop: OneHop,
    mining: MiningSettings,
    *,
    max_associations: int,
    contains: Mapping[str, Sequence[str]],
    spread: Spread = here,
) -> None:
    """Pair each query with its positives by click and relevance, its own and those lent to it.

    What the stage wrote before is kept for queries that nothing has touched since; the pairs are the same as if all
    were made anew.

    Args:
        tables: what the stage reads.
        output: takes `mined_pairs`, a partition a day, and its patch.
        hop: makes the queries' own pairs.
        mining: which sources a pair may have, and when a day's files are written anew.
        max_associations: lenders of a query and kind; 0: all.
        contains: by day, the digests of earlier versions of its evidence that the present one only adds to.
        spread: where all pairs are made, if they are made anew.
    """
    days, mark = tables.by_day("click_evidence"), output.unit_key("all", digest(tables.parts("click_prior")))
    read = digests(days)
    share = mining.patch_share
    facts = output.earlier_facts
    earlier_pairs = output.previous_tables("mined_pairs") if facts.get("mark") == mark else None
    news = None if earlier_pairs is None else news_of(facts["read"], read, contains)
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
            write_changes(connection, output, earlier_pairs, query_relation=query_relation, pairs=pairs, share=share)
    output.facts |= {"mark": mark, "read": read}
    rows = output.rows("mined_pairs")
    output.count(FunnelStep("mined_pairs", "queries", tables.rows("log_queries"), "pairs", rows))


SHARD_QUERIES = 1 << 12
"""Queries in a shard, at least: each shard reads the tables."""


class PairSettings(NamedTuple):
    """How all pairs are made, and where."""

    hop: OneHop
    max_associations: int
    merge: Merge
    spread: Spread


@dataclass(frozen=True)
class PairShard:
    """A shard: the queries that come in one place of `shards`, in order of tenant and query_id."""

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
    """All pairs of a shard's queries, in no order."""
    with shard.tables.connect() as connection:
        parameters = {"before": shard.hop.before, "shard": shard.shard, "shards": shard.shards}
        pairs = _pairs(
            connection, materialize(connection, SHARE, parameters), shard.hop, shard.max_associations, shard.merge
        )
        yield from pieces(connection, f"SELECT {COLUMNS} FROM {pairs}", {}, RESULT_ROWS)


def _all_pairs(connection: duckdb.DuckDBPyConnection, tables: Tables, output: Output, making: PairSettings) -> Relation:
    """The pairs of all queries, made where there is room."""
    hop, max_associations, merge, spread = making
    shards = min(spread.places, tables.rows("log_queries") // SHARD_QUERIES)
    if shards < 2:
        return _pairs(connection, all_queries(connection, hop), hop, max_associations, merge)
    contents = key_of(*(tables.content(table) for table in PAIRS_STAGE.reads))
    places = [f"progress/{PAIRS_STAGE.name}/{output.unit_key(f'{n} of {shards}', contents)}" for n in range(shards)]
    every = [PairShard(tables, hop, max_associations, merge, n + 1, shards, folder) for n, folder in enumerate(places)]
    connection.register("piece", MINED_PAIRS.empty())
    pieces = materialize(connection, f"SELECT {COLUMNS} FROM piece")
    for rows in chain.from_iterable(spread(make_pairs, every)):
        connection.register("piece", rows)
        connection.execute(f"INSERT INTO {pieces} SELECT {COLUMNS} FROM piece")
    connection.unregister("piece")
    return pieces


def _pairs(
    connection: duckdb.DuckDBPyConnection, query_relation: Relation, hop: OneHop, max_associations: int, merge: Merge
) -> Relation:
    """All pairs of the queries that are wanted."""
    loans = loans_to(connection, query_relation, before=hop.before)
    return multi_hop(connection, query_relation, loans, hop, max_associations=max_associations, merge=merge)


EVERYTHING = "SELECT tenant, query_id FROM log_queries WHERE date < CAST($before AS DATE)"

SHARE = """
    SELECT tenant, query_id FROM (
        SELECT tenant, query_id, ntile($shards) OVER (ORDER BY tenant, query_id) AS shard
        FROM log_queries WHERE date < CAST($before AS DATE)
    ) WHERE shard = $shard
"""

SEEN = "SELECT DISTINCT tenant, query_id FROM {delta} WHERE date < CAST($before AS DATE)"

# A lender changed when its positives did, or the day from which on it lends them: a late day can make a query older.
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

# A lent negative is the lender's own draw, unless the borrower speaks against that: then any exposure may matter.
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
    """What came since the pairs were last made: days that are new, or to whose evidence something was added."""

    days: tuple[str, ...]


def news_of(
    before: Mapping[str, str], now: Mapping[str, str], contains: Mapping[str, Sequence[str]]
) -> ChangedEvidence | None:
    """Compare the days' digests; None where evidence went away, so that everything has to be made anew.

    Args:
        before: digest of each day's evidence when the pairs were last made.
        now: the same now.
        contains: by day, the digests of earlier versions that the present one only adds to.
    """
    lost = [day for day, digest in before.items() if now.get(day) != digest and digest not in contains.get(day, ())]
    return None if lost else ChangedEvidence(tuple(day for day, digest in now.items() if before.get(day) != digest))


def all_queries(connection: duckdb.DuckDBPyConnection, hop: OneHop) -> Relation:
    """All queries: tenant and query_id."""
    return materialize(connection, EVERYTHING, {"before": hop.before})


def touched_queries(
    connection: duckdb.DuckDBPyConnection, delta: Relation, earlier: Relation, news: ChangedEvidence, hop: OneHop
) -> tuple[Relation, OneHopPairs]:
    """The queries whose pairs may have changed, as tenant and query_id: too many do no harm, too few would.

    With them the own pairs of those that have new evidence, so that no query's evidence is summed up twice.

    Args:
        connection: with the tables that `hop` reads, and associations.
        delta: `click_evidence` of the days in `news`.
        earlier: the pairs as they were made last.
        news: what came since then.
        hop: makes the touched queries' own pairs, to see which of them lend something else now.
    """
    seen_queries = materialize(connection, SEEN, {"before": hop.before}, delta=delta)
    one_hop = hop.pairs(connection, seen_queries)
    days = {"days": list(news.days)}
    changed = materialize(connection, CHANGED, days, earlier=earlier, seen=seen_queries, click=one_hop.click)
    before = {"before": hop.before}
    touched_relation = materialize(
        connection, TOUCHED, before, seen=seen_queries, changed=changed, earlier=earlier, **one_hop._asdict()
    )
    drop(connection, changed)
    return touched_relation, one_hop
