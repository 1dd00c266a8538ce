"""The stage `associate`: Algorithm 1 of ScalingNote, one resumable unit per date.

A query *borrows* click or relevance evidence from its associated queries, its *lenders*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import accumulate

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.pipeline.mine.association.algorithm import Associations
from darklode.pipeline.mine.association.reformulations import session_associations
from darklode.pipeline.mine.days import by_date
from darklode.schemas.mined_tables import ASSOCIATIONS
from darklode.schemas.mining import AssociateSettings

ASSOCIATE = Stage("associate", 3, ("query_terms", "log_queries"), ("associations",))
SESSION_TABLES = "query_clusters", "reformulations"
"""Tables that the guarded rule reads, too."""

# A sum of hashes: independent of the order of the rows.
_DIGEST_BY_DATE_SQL = """
    SELECT date, sum(digest)::VARCHAR AS digest FROM (
        SELECT date, hash(tenant, query_id)::HUGEINT AS digest FROM log_queries UNION ALL
        SELECT date, hash(tenant, query_id, term, importance)::HUGEINT AS digest
        FROM query_terms JOIN log_queries USING (tenant, query_id) {of_sessions}
    ) GROUP BY date ORDER BY date
"""
_SESSION_DIGESTS_SQL = """
    UNION ALL SELECT date, hash(tenant, query_id, split)::HUGEINT FROM query_clusters
    UNION ALL SELECT date, hash(tenant, query_id, next_query_id, session_split, shares_click)::HUGEINT
    FROM reformulations
"""


SHARD_QUERIES = 1 << 12
"""Minimum number of borrowing queries in a shard: every shard numbers all queries of the log, whatever its size."""


@dataclass(frozen=True)
class AssociationShard:
    """A contiguous share of the borrowing queries, ordered by tenant and query_id.

    Attributes:
        tables: `query_terms` and `log_queries`, complete: the queries of all shards may lend.
        settings: rule, thresholds and the maximum number of lenders per key.
        since: associations of earlier dates are left out.
        number: index of the shard, from 0.
        n_shards: number of shards.
        basis: fingerprint of all inputs.
    """

    tables: Tables
    settings: AssociateSettings
    since: date
    number: int
    n_shards: int
    basis: str

    @property
    def name(self) -> str:
        return f"associate {self.number + 1} of {self.n_shards}"

    @property
    def folder(self) -> str:
        return f"progress/{ASSOCIATE.name}/{key_of(self.basis, self.since.isoformat(), self.number, self.n_shards)}"


def associate(tables: Tables, output: Output, settings: AssociateSettings, spread: Spread = here) -> None:
    """Write the associations between queries, with one resumable unit per date.

    The guarded rule adds session associations (`reformulations`).

    If any date is missing, the shards compute all associations from the first missing date on; only those of missing
    dates are written.

    An association is dated by the later of its two queries. A new date therefore leaves earlier dates unchanged; a
    query that arrives late recomputes its date and all later ones.

    Args:
        tables: tables that contain `query_terms` and `log_queries`, and for the guarded rule `SESSION_TABLES`.
        output: receives `associations`, by date.
        settings: rule, thresholds and the maximum number of lenders per key.
        spread: runs the shards.
    """
    totals = Counter[str]()
    with_sessions = settings.rule == "guarded"
    with tables.connect() as connection:
        fingerprints = chained_fingerprints(connection, sessions=with_sessions)
    missing_days = [day for day, fingerprint in fingerprints.items() if not output.is_done(str(day), fingerprint)]
    inputs_fingerprint = output.unit_key("", key_of(*fingerprints.values()))
    shards = _make_shards(tables, settings, missing_days, inputs_fingerprint, spread.places)
    over_bound = Counter[date]()
    results = [_ShardResult(pieces, over_bound) for pieces in spread(associate_shard, shards)]
    of_sessions = session_associations(tables, missing_days, settings.th_rel) if with_sessions and missing_days else {}
    for n_done, (day, fingerprint) in enumerate(fingerprints.items(), 1):
        with output.unit(str(day), fingerprint) as unit:
            if results and not unit.done:
                unit.facts["written"] = _write_pieces(_associations_of_day(results, day), output)
                unit.facts["written"] += _write_pieces(iter(of_sessions.get(day, ())), output)
                unit.facts["over_bound"] = over_bound[day]
        totals.update(unit.facts)
        output.progress(n_done, len(fingerprints), str(day))
    n_written = totals["written"]
    n_all = n_written + totals["over_bound"]
    output.count(FunnelStep("associate", "queries", tables.rows("log_queries"), "associations", n_all))
    dropped = {"more than associate.max_lenders per key": totals["over_bound"]} if totals["over_bound"] else {}
    output.count(FunnelStep("bound lenders", "associations", n_all, "associations", n_written, dropped))


def _make_shards(
    tables: Tables, settings: AssociateSettings, missing_days: Sequence[date], fingerprint: str, max_shards: int
) -> list[AssociationShard]:
    """Shards that compute the first missing date and all later ones; none if no date is missing."""
    if not missing_days:
        return []
    n_shards = max(1, min(max_shards, tables.rows("log_queries") // SHARD_QUERIES))
    since = missing_days[0]
    return [AssociationShard(tables, settings, since, number, n_shards, fingerprint) for number in range(n_shards)]


def associate_shard(shard: AssociationShard) -> Pieces:
    """Compute the associations of a shard.

    Yields:
        First the number of associations over the bound, by date; then rows of `associations`, by date and query.
    """
    with shard.tables.connect() as connection:
        associations = Associations(connection, shard.settings, shard.since, (shard.number, shard.n_shards))
        counts = associations.over_bound
        yield pa.table({"date": pa.array(counts, pa.date32()), "over_bound": pa.array(counts.values(), pa.int64())})
        for _, rows in associations.rows():
            yield rows


def _associations_of_day(results: Sequence[_ShardResult], day: date) -> Iterator[pa.Table]:
    """Rows of one date from all shards, in shard order, which is the order of tenant and query."""
    batches = (batch for result in results for rows in result.of_day(day) for batch in rows.to_batches())
    return (rows.cast(ASSOCIATIONS.schema) for _, rows in by_date(batches))


def chained_fingerprints(connection: duckdb.DuckDBPyConnection, *, sessions: bool) -> dict[date, str]:
    """Fingerprint of all queries and terms up to each date; dates ascending.

    A change of a date's rows changes the fingerprints of that date and all later ones.

    Args:
        connection: a connection with the tables that the stage reads.
        sessions: include reformulations, and the splits of the queries.
    """
    digests_sql = _DIGEST_BY_DATE_SQL.format(of_sessions=_SESSION_DIGESTS_SQL if sessions else "")
    digest_by_date = dict(connection.sql(digests_sql).fetchall())
    return dict(zip(digest_by_date, accumulate(digest_by_date.values(), key_of), strict=True))


def _write_pieces(pieces: Iterator[pa.Table], output: Output) -> int:
    """Write rows of `associations`; returns their number."""
    n_rows = 0
    for piece in pieces:
        output.write("associations", piece)
        n_rows += piece.num_rows
    return n_rows


class _ShardResult:
    """Reads the output of `associate_shard` date by date; dates must be requested in ascending order.

    Args:
        pieces: output of `associate_shard`.
        over_bound: the shard's numbers of associations over the bound are added to it, by date.
    """

    def __init__(self, pieces: Pieces, over_bound: Counter[date]) -> None:
        over_bound.update({row["date"]: row["over_bound"] for row in next(pieces).to_pylist()})
        self._dated_pieces = ((rows["date"][0].as_py(), rows) for rows in pieces)
        self._next_piece = next(self._dated_pieces, None)

    def of_day(self, day: date) -> Iterator[pa.Table]:
        """Pieces of one date; those of earlier dates are skipped."""
        while self._next_piece and self._next_piece[0] <= day:
            if self._next_piece[0] == day:
                yield self._next_piece[1]
            self._next_piece = next(self._dated_pieces, None)
