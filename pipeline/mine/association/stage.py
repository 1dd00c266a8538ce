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
from darklode.pipeline.mine.association.algorithm import Associations, by_date
from darklode.schemas.mined_tables import ASSOCIATIONS
from darklode.schemas.mining import AssociateSettings

ASSOCIATE = Stage("associate", 2, ("query_terms", "log_queries"), ("associations",))

_CONTENT = """
    SELECT date, sum(digest)::VARCHAR AS digest FROM (
        SELECT date, hash(tenant, query_id)::HUGEINT AS digest FROM log_queries UNION ALL
        SELECT date, hash(tenant, query_id, term, importance)::HUGEINT AS digest
        FROM query_terms JOIN log_queries USING (tenant, query_id)
    ) GROUP BY date ORDER BY date
"""


SHARD_QUERIES = 1 << 12
"""Minimum number of borrowing queries in a shard: every shard numbers all queries of the log, whatever its size."""


@dataclass(frozen=True)
class AssociationShard:
    """A contiguous share of the borrowing queries, ordered by tenant and query_id.

    Attributes:
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

    An association is dated by the later of its two queries. A new date therefore leaves earlier dates unchanged; a
    query that arrives late recomputes its date and all later ones.

    Args:
        tables: `query_terms` and `log_queries`.
        output: `associations`, by date.
        settings: rule, thresholds and the maximum number of lenders per key.
        spread: runs the shards.
    """
    totals = Counter[str]()
    with tables.connect() as connection:
        fingerprints = chained_fingerprints(connection)
    missing = [day for day, basis in fingerprints.items() if not output.is_done(str(day), basis)]
    basis_of_all = output.unit_key("", key_of(*fingerprints.values()))
    shards = _shards(tables, settings, missing, basis_of_all, spread.places)
    over_bound = Counter[date]()
    results = [_ShardResult(pieces, over_bound) for pieces in spread(associate_shard, shards)]
    for done, (day, basis) in enumerate(fingerprints.items()):
        with output.unit(str(day), basis) as unit:
            if results and not unit.done:
                unit.facts["written"] = _write(_associations_of_day(results, day), output)
                unit.facts["over_bound"] = over_bound[day]
        totals.update(unit.facts)
        output.progress(done + 1, len(fingerprints), str(day))
    n_written, n_all = totals["written"], totals["written"] + totals["over_bound"]
    output.count(FunnelStep("associate", "queries", tables.rows("log_queries"), "associations", n_all))
    dropped = {"more than associate.max_lenders per key": totals["over_bound"]} if totals["over_bound"] else {}
    output.count(FunnelStep("bound lenders", "associations", n_all, "associations", n_written, dropped))


def _shards(
    tables: Tables, settings: AssociateSettings, missing: Sequence[date], basis: str, places: int
) -> list[AssociationShard]:
    """Shards that compute the first missing date and all later ones; none if no date is missing."""
    count = max(1, min(places, tables.rows("log_queries") // SHARD_QUERIES)) if missing else 0
    return [AssociationShard(tables, settings, missing[0], number, count, basis) for number in range(count)]


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
    """Rows of one date from all shards, in shard order."""
    batches = (batch for result in results for rows in result.of_day(day) for batch in rows.to_batches())
    return (rows.cast(ASSOCIATIONS.schema) for _, rows in by_date(batches))


def chained_fingerprints(connection: duckdb.DuckDBPyConnection) -> dict[date, str]:
    """Fingerprint of all queries and terms up to each date; dates ascending."""
    digests = dict(connection.sql(_CONTENT).fetchall())
    return dict(zip(digests, accumulate(digests.values(), key_of), strict=True))


def _write(pieces: Iterator[pa.Table], output: Output) -> int:
    n_rows = 0
    for piece in pieces:
        output.write("associations", piece)
        n_rows += piece.num_rows
    return n_rows


class _ShardResult:
    """Reads the output of `associate_shard` date by date; dates must be requested in ascending order."""

    def __init__(self, pieces: Pieces, over_bound: Counter[date]) -> None:
        over_bound.update({row["date"]: row["over_bound"] for row in next(pieces).to_pylist()})
        self._pieces = ((rows["date"][0].as_py(), rows) for rows in pieces)
        self._next = next(self._pieces, None)

    def of_day(self, day: date) -> Iterator[pa.Table]:
        """Pieces of one date; those of earlier dates are skipped."""
        while self._next and self._next[0] <= day:
            if self._next[0] == day:
                yield self._next[1]
            self._next = next(self._pieces, None)
