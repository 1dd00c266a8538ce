"""The stage that associates queries, date by date: a night works on what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import accumulate

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.spread import Pieces, Spread, here
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
"""Borrowers in a shard, at least: each shard numbers all queries."""


@dataclass(frozen=True)
class AssociationShard:
    """A shard: what the queries borrow that come in one place of `places`, in order of tenant and query_id."""

    tables: Tables
    settings: AssociateSettings
    since: date
    number: int
    places: int
    basis: str

    @property
    def name(self) -> str:
        """See `Shard`."""
        return f"associate {self.number + 1} of {self.places}"

    @property
    def folder(self) -> str:
        """See `Shard`."""
        return f"progress/{ASSOCIATE.name}/{key_of(self.basis, self.since.isoformat(), self.number, self.places)}"


def associate(tables: Tables, output: Output, settings: AssociateSettings, spread: Spread = here) -> None:
    """Write who lends to whom (ScalingNote, Algorithm 1), each date's associations in a unit of its own.

    An association has the date of the later of its two queries, so a date depends on the queries and terms up to it: a
    new date leaves the earlier ones as they are, a late query redoes its date and all after it.
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
    """Of the first missing date and all after it; none where nothing is missing."""
    count = max(1, min(places, tables.rows("log_queries") // SHARD_QUERIES)) if missing else 0
    return [AssociationShard(tables, settings, missing[0], number, count, basis) for number in range(count)]


def associate_shard(shard: AssociationShard) -> Pieces:
    """How many associations of a shard the bound left out, by date; then they, by date, query, kind and lender."""
    with shard.tables.connect() as connection:
        associations = Associations(connection, shard.settings, shard.since, (shard.number, shard.places))
        yield pa.table(
            {"date": pa.array(associations.cut, pa.date32()), "cut": pa.array(associations.cut.values(), pa.int64())}
        )
        for _, rows in associations.rows():
            yield rows


def _day_batches(pieces: Sequence[_Pieces], day: date) -> Iterator[pa.Table]:
    """The associations of one date, of all shards."""
    batches = (
        batch for pieces_of_shard in pieces for rows in pieces_of_shard.of_day(day) for batch in rows.to_batches()
    )
    return (rows.cast(ASSOCIATIONS.schema) for _, rows in by_date(batches))


def chained_fingerprints(connection: duckdb.DuckDBPyConnection) -> dict[date, str]:
    """What each date's associations depend on: a hash of all queries and terms up to it, dates ascending."""
    digests = dict(connection.sql(_CONTENT).fetchall())
    return dict(zip(digests, accumulate(digests.values(), key_of), strict=True))


def _write(pieces: Iterator[pa.Table], output: Output) -> int:
    rows = 0
    for piece in pieces:
        output.write("associations", piece)
        rows += piece.num_rows
    return rows


class _Pieces:
    """A shard's pieces of ascending dates, to be asked for date by date; what it cut is counted at once."""

    def __init__(self, pieces: Pieces, cut: Counter[date]) -> None:
        cut.update({row["date"]: row["cut"] for row in next(pieces).to_pylist()})
        self._pieces = ((rows["date"][0].as_py(), rows) for rows in pieces)
        self._ahead = next(self._pieces, None)

    def of_day(self, day: date) -> Iterator[pa.Table]:
        """The pieces of one date; those of earlier ones are passed over."""
        while self._ahead and self._ahead[0] <= day:
            if self._ahead[0] == day:
                yield self._ahead[1]
            self._ahead = next(self._pieces, None)
