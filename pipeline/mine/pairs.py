"""The stage `mined_pairs`: pairs from evidence and associations, updated incrementally.

A nightly run recomputes only *touched* queries: queries with new evidence, and queries that borrow evidence from a
query whose own pairs changed. The result must equal that of a full recomputation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import duckdb

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, digest, key_of
from darklode.pipeline.base.artifacts.database import pieces
from darklode.pipeline.base.artifacts.output import RESULT_ROWS
from darklode.pipeline.base.relations import Relation, drop, materialize, view
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.pipeline.mine.days import digests
from darklode.pipeline.mine.incremental_write import PAIR_COLUMNS, write_all, write_changes
from darklode.pipeline.mine.multi_hop import LendingRules, find_loans, multi_hop
from darklode.pipeline.mine.one_hop import OneHop, OneHopPairs
from darklode.schemas.mined_tables import MINED_PAIRS

PAIRS_STAGE = Stage(
    "mined_pairs",
    5,
    ("click_evidence", "click_prior", "log_queries", "query_clusters", "relevance_evidence", "associations"),
    MINED_PAIRS.files,
)

PATCH_SHARE = 0.05
"""A day's files are rewritten if more than this share of its rows changed; smaller changes go to a patch file beside
them. A larger share writes less each night, and leaves a larger patch that every reader has to apply.
"""


def mined_pairs(
    tables: Tables,
    output: Output,
    hop: OneHop,
    rules: LendingRules,
    *,
    contains: Mapping[str, Sequence[str]],
    spread: Spread = here,
) -> None:
    """Write each query's pairs from clicks and relevance, one-hop and multi-hop.

    Pairs of queries that are not touched are kept. All pairs are recomputed if the settings or `click_prior` changed,
    or if a day lost evidence.

    Args:
        tables: inputs of the stage.
        output: receives `mined_pairs`, one partition per day, and its patch.
        hop: makes one-hop pairs.
        rules: what associated queries lend.
        contains: by day, fingerprints of earlier versions of its evidence of which the present version lost no rows.
        spread: runs the shards of a full recomputation.
    """
    parts_by_day = tables.by_day("click_evidence")
    settings_fingerprint = output.unit_key("all", digest(tables.parts("click_prior")))
    evidence_fingerprints = digests(parts_by_day)
    facts = output.earlier_facts
    has_same_settings = facts.get("mark") == settings_fingerprint
    earlier_pairs = output.previous_tables("mined_pairs") if has_same_settings else None
    changed_evidence = (
        None if earlier_pairs is None else find_changed_evidence(facts["read"], evidence_fingerprints, contains)
    )
    split_fingerprints = digests(tables.by_day("query_clusters")) if hop.by_session else {}
    if changed_evidence is not None:
        changed_evidence = changed_evidence.with_changed_splits(facts["splits"], split_fingerprints)
    with tables.connect() as connection:
        if earlier_pairs is None or changed_evidence is None:
            settings = PairSettings(hop, rules, spread)
            write_all(connection, output, _all_pairs(connection, tables, output, settings))
        else:
            changed_parts = [part for day in changed_evidence.days for part in parts_by_day[day]]
            evidence = view(connection, tables.with_parts("click_evidence", changed_parts), "click_evidence")
            earlier_rows = view(connection, earlier_pairs, "mined_pairs")
            queries, one_hop_pairs = touched_queries(connection, evidence, earlier_rows, changed_evidence, hop)
            hop_with_pairs = replace(hop, previous=one_hop_pairs)
            pairs = _pairs_of_queries(connection, queries, hop_with_pairs, rules)
            write_changes(connection, output, earlier_pairs, recomputed_queries=queries, pairs=pairs, share=PATCH_SHARE)
    output.facts |= {"mark": settings_fingerprint, "read": evidence_fingerprints, "splits": split_fingerprints}
    n_pairs = output.rows("mined_pairs")
    output.count(FunnelStep("mined_pairs", "queries", tables.rows("log_queries"), "pairs", n_pairs))


SHARD_QUERIES = 1 << 12
"""Minimum number of queries in a shard: each shard reads all tables, whatever its size (not measured)."""


class PairSettings(NamedTuple):
    """Settings of a full recomputation; the fields are the arguments of `mined_pairs`."""

    hop: OneHop
    rules: LendingRules
    spread: Spread


@dataclass(frozen=True)
class PairShard:
    """A contiguous share of the queries, ordered by tenant and query_id.

    Attributes:
        tables: inputs of the stage.
        hop: makes one-hop pairs.
        rules: what associated queries lend.
        shard: number of the shard, from 1.
        shards: number of shards.
        folder: where the shard's result is saved, so that an interrupted run can resume.
    """

    tables: Tables
    hop: OneHop
    rules: LendingRules
    shard: int
    shards: int
    folder: str

    @property
    def name(self) -> str:
        return f"mined_pairs {self.shard} of {self.shards}"


def make_pairs(shard: PairShard) -> Pieces:
    """Make all pairs of a shard's queries.

    Yields:
        Rows of `mined_pairs`, in undefined order.
    """
    with shard.tables.connect() as connection:
        parameters = {"before": shard.hop.before, "shard": shard.shard, "shards": shard.shards}
        queries = materialize(connection, QUERIES_OF_SHARD_SQL, parameters)
        pairs = _pairs_of_queries(connection, queries, shard.hop, shard.rules)
        yield from pieces(connection, f"SELECT {PAIR_COLUMNS} FROM {pairs}", {}, RESULT_ROWS)


def _all_pairs(
    connection: duckdb.DuckDBPyConnection, tables: Tables, output: Output, settings: PairSettings
) -> Relation:
    """The pairs of all queries, computed in shards where `spread` allows."""
    hop, rules, spread = settings
    n_shards = min(spread.places, tables.rows("log_queries") // SHARD_QUERIES)
    if n_shards < 2:
        return _pairs_of_queries(connection, all_queries(connection, hop), hop, rules)
    inputs_fingerprint = key_of(*(tables.content(table) for table in PAIRS_STAGE.reads))
    shard_keys = [output.unit_key(f"{index} of {n_shards}", inputs_fingerprint) for index in range(n_shards)]
    shards = [
        PairShard(tables, hop, rules, number, n_shards, f"progress/{PAIRS_STAGE.name}/{shard_key}")
        for number, shard_key in enumerate(shard_keys, 1)
    ]
    connection.register("shard_pairs", MINED_PAIRS.empty())
    all_pairs = materialize(connection, f"SELECT {PAIR_COLUMNS} FROM shard_pairs")  # no rows yet, but the columns
    for rows in chain.from_iterable(spread(make_pairs, shards)):
        connection.register("shard_pairs", rows)
        connection.execute(f"INSERT INTO {all_pairs} SELECT {PAIR_COLUMNS} FROM shard_pairs")
    connection.unregister("shard_pairs")
    return all_pairs


def _pairs_of_queries(
    connection: duckdb.DuckDBPyConnection, queries: Relation, hop: OneHop, rules: LendingRules
) -> Relation:
    """All pairs of some queries (tenant, query_id), one-hop and multi-hop."""
    loans = find_loans(connection, queries, before=hop.before, within_split=hop.by_session)
    return multi_hop(connection, queries, loans, hop, rules)


TRAINING_QUERIES_SQL = "SELECT tenant, query_id FROM log_queries WHERE date < CAST($before AS DATE)"

# ntile splits the sorted queries into shares whose sizes differ by at most one.
QUERIES_OF_SHARD_SQL = """
    SELECT tenant, query_id FROM (
        SELECT tenant, query_id, ntile($shards) OVER (ORDER BY tenant, query_id) AS shard
        FROM log_queries WHERE date < CAST($before AS DATE)
    ) WHERE shard = $shard
"""

# Queries with new evidence.
QUERIES_WITH_NEW_EVIDENCE_SQL = (
    "SELECT DISTINCT tenant, query_id FROM {changed_evidence} WHERE date < CAST($before AS DATE)"
)

# A lender changed if its positives changed, or the first day it lends them: a late day can predate a query's first day.
CHANGED_LENDERS_SQL = """
    WITH earlier_click_pairs AS (
        SELECT tenant, query_id, positive_id, date
        FROM {earlier_pairs} SEMI JOIN {updated_queries} USING (tenant, query_id) WHERE source = 'click_one_hop'
    ), changed_pairs AS (
        (SELECT tenant, query_id, positive_id, date FROM {click_pairs} EXCEPT FROM earlier_click_pairs)
        UNION ALL
        (FROM earlier_click_pairs EXCEPT SELECT tenant, query_id, positive_id, date FROM {click_pairs})
    )
    SELECT DISTINCT tenant, query_id FROM (
        SELECT tenant, query_id FROM changed_pairs
        UNION ALL
        SELECT tenant, query_id FROM log_queries WHERE list_contains($days, CAST(date AS VARCHAR))
    )
"""

# A borrowed negative is the lender's own negative, unless it contradicts a positive of the borrower: then any exposure
# of the lender may matter.
TOUCHED_QUERIES_SQL = """
    WITH lent_pairs AS (
        SELECT tenant, query_id AS via_query_id, positive_id, 'click_multi_hop' AS source, negative_id
        FROM {click_pairs}
        UNION ALL
        SELECT tenant, query_id, positive_id, 'relevance_multi_hop', negative_id FROM {relevance_pairs}
    )
    SELECT tenant, query_id FROM (
        SELECT tenant, query_id FROM {updated_queries}
        UNION
        SELECT DISTINCT a.tenant, a.query_id FROM associations a SEMI JOIN {changed_lenders} c
          ON c.tenant = a.tenant AND c.query_id = a.associated_query_id
        UNION
        SELECT tenant, e.query_id
        FROM {earlier_pairs} e JOIN lent_pairs l USING (tenant, via_query_id, positive_id, source)
        WHERE e.negative_id IS DISTINCT FROM l.negative_id
    ) SEMI JOIN (FROM log_queries WHERE date < CAST($before AS DATE)) USING (tenant, query_id)
"""


@dataclass(frozen=True)
class ChangedEvidence:
    """The change of the click evidence since the pairs were last made.

    Attributes:
        days: ISO dates of the days that are new, or whose evidence grew, or whose new queries changed their split.
    """

    days: tuple[str, ...]

    def with_changed_splits(self, before: Mapping[str, str], now: Mapping[str, str]) -> "ChangedEvidence":
        """Add the days whose new queries changed their split: a late day can change a query's first session.

        A query has evidence on its first day, so the evidence of these days names all queries whose split changed.

        Args:
            before: by day, the fingerprint of the splits of its new queries when the pairs were last made.
            now: by day, the present fingerprint.
        """
        changed_days = (day for day, fingerprint in now.items() if before.get(day) != fingerprint)
        return ChangedEvidence(tuple(sorted({*self.days, *changed_days})))


def find_changed_evidence(
    before: Mapping[str, str], now: Mapping[str, str], contains: Mapping[str, Sequence[str]]
) -> ChangedEvidence | None:
    """Find the days whose evidence changed, by their fingerprints.

    Returns None if a day lost evidence: a lost row can invalidate any pair, so all pairs must be recomputed.

    Args:
        before: by day, the fingerprint of its evidence when the pairs were last made.
        now: by day, the present fingerprint.
        contains: by day, fingerprints of earlier versions of which the present one lost no rows.
    """
    for day, earlier_fingerprint in before.items():
        is_unchanged = now.get(day) == earlier_fingerprint
        if not is_unchanged and earlier_fingerprint not in contains.get(day, ()):
            return None
    return ChangedEvidence(tuple(day for day, fingerprint in now.items() if before.get(day) != fingerprint))


def all_queries(connection: duckdb.DuckDBPyConnection, hop: OneHop) -> Relation:
    """All queries before the test period: tenant and query_id."""
    return materialize(connection, TRAINING_QUERIES_SQL, {"before": hop.before})


def touched_queries(
    connection: duckdb.DuckDBPyConnection,
    changed_evidence: Relation,
    earlier_pairs: Relation,
    changes: ChangedEvidence,
    hop: OneHop,
) -> tuple[Relation, OneHopPairs]:
    """Find the queries whose pairs may have changed.

    Args:
        connection: a connection with the tables that `hop` reads, and associations.
        changed_evidence: rows of `click_evidence` of the days in `changes`.
        earlier_pairs: the pairs of the last run.
        changes: the days whose evidence changed since then.
        hop: makes one-hop pairs, to detect lenders whose pairs changed.

    Returns:
        The touched queries (tenant, query_id), some of which may turn out unchanged, and the one-hop pairs of the
            queries with new evidence, so that the caller need not compute these again.
    """
    before_test = {"before": hop.before}
    updated_queries = materialize(
        connection, QUERIES_WITH_NEW_EVIDENCE_SQL, before_test, changed_evidence=changed_evidence
    )
    one_hop_pairs = hop.pairs(connection, updated_queries)
    changed_days = {"days": list(changes.days)}
    changed_lenders = materialize(
        connection,
        CHANGED_LENDERS_SQL,
        changed_days,
        earlier_pairs=earlier_pairs,
        updated_queries=updated_queries,
        click_pairs=one_hop_pairs.click_pairs,
    )
    touched = materialize(
        connection,
        TOUCHED_QUERIES_SQL,
        before_test,
        updated_queries=updated_queries,
        changed_lenders=changed_lenders,
        earlier_pairs=earlier_pairs,
        **one_hop_pairs._asdict(),
    )
    drop(connection, changed_lenders)
    return touched, one_hop_pairs
