"""The stage `associate`: query associations by date, so that a nightly run computes new dates only."""

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
"""Minimum number of queries in a shard: each shard has to number all queries of the log, which costs the same however
small the shard is.
"""


@dataclass(frozen=True)
class AssociationShard:
    """One of `places` shards of the borrowing queries, in order of tenant and query_id."""

    tables: Tables
    settings: AssociateSettings
    since: date
    number: int
    places: int
    basis: str

    @property
    def name(self) -> str:
        return f"associate {self.number + 1} of {self.places}"

    @property
    def folder(self) -> str:
        return f"progress/{ASSOCIATE.name}/{key_of(self.basis, self.since.isoformat(), self.number, self.places)}"


def associate(tables: Tables, output: Output, settings: AssociateSettings, spread: Spread = here) -> None:
    """Write the associations of ScalingNote, Algorithm 1, with one resumable unit per date.

    An association has the date of the later of its two queries, so a date depends on all queries and terms up to it: a
    new date leaves earlier dates unchanged, while a late query recomputes its date and every later one.
    """
    totals: Counter[str] = Counter()
    with tables.connect() as connection:
        bases = chained_fingerprints(connection)
    missing = [day for day, basis in bases.items() if not output.is_done(str(day), basis)]
    cut = Counter[date]()
    shards = _shards(tables, settings, missing, output.unit_key("", key_of(*bases.values())), spread.places)
    pieces = [_Pieces(shard_pieces, cut) for shard_pieces in spread(associate_shard, shards)]
    for done, (day, basis) in enumerate(bases.items()):
        with output.unit(str(day), basis) as unit:
            if pieces and not unit.done:
                unit.facts["kept"] = _write(_day_batches(pieces, day), output)
                unit.facts["cut"] = cut[day]
        totals.update(unit.facts)
        output.progress(done + 1, len(bases), str(day))
    n_kept, every = totals["kept"], totals["kept"] + totals["cut"]
    output.count(FunnelStep("associate", "queries", tables.rows("log_queries"), "associations", every))
    crowded = {"key has enough lenders": totals["cut"]} if totals["cut"] else {}
    output.count(FunnelStep("bound lenders", "associations", every, "associations", n_kept, crowded))


def _shards(
    tables: Tables, settings: AssociateSettings, missing: Sequence[date], basis: str, places: int
) -> list[AssociationShard]:
    """Shards for the first missing date and all later ones; none if no date is missing."""
    count = max(1, min(places, tables.rows("log_queries") // SHARD_QUERIES)) if missing else 0
    return [AssociationShard(tables, settings, missing[0], number, count, basis) for number in range(count)]


def associate_shard(shard: AssociationShard) -> Pieces:
    """First a table of how many associations exceeded the bound, by date; then the rest, ordered by date and query."""
    with shard.tables.connect() as connection:
        associations = Associations(connection, shard.settings, shard.since, (shard.number, shard.places))
        yield pa.table(
            {"date": pa.array(associations.cut, pa.date32()), "cut": pa.array(associations.cut.values(), pa.int64())}
        )
        for _, rows in associations.rows():
            yield rows


def _day_batches(pieces: Sequence[_Pieces], day: date) -> Iterator[pa.Table]:
    """The associations of one date from all shards."""
    batches = (
        batch for pieces_of_shard in pieces for rows in pieces_of_shard.of_day(day) for batch in rows.to_batches()
    )
    return (rows.cast(ASSOCIATIONS.schema) for _, rows in by_date(batches))


def chained_fingerprints(connection: duckdb.DuckDBPyConnection) -> dict[date, str]:
    """Each date's fingerprint: a hash of all queries and terms up to that date, dates ascending."""
    digests = dict(connection.sql(_CONTENT).fetchall())
    return dict(zip(digests, accumulate(digests.values(), key_of), strict=True))


def _write(pieces: Iterator[pa.Table], output: Output) -> int:
    rows = 0
    for piece in pieces:
        output.write("associations", piece)
        rows += piece.num_rows
    return rows


class _Pieces:
    """Iterates a shard's result date by date; dates must be requested in ascending order."""

    def __init__(self, pieces: Pieces, cut: Counter[date]) -> None:
        cut.update({row["date"]: row["cut"] for row in next(pieces).to_pylist()})
        self._pieces = ((rows["date"][0].as_py(), rows) for rows in pieces)
        self._ahead = next(self._pieces, None)

    def of_day(self, day: date) -> Iterator[pa.Table]:
        """The pieces of one date; pieces of earlier dates are skipped."""
        while self._ahead and self._ahead[0] <= day:
            if self._ahead[0] == day:
                yield self._ahead[1]
            self._ahead = next(self._pieces, None)
