"""The stage that associates queries, date by date: a night works on what is new."""

from collections import Counter
from collections.abc import Iterator
from datetime import date
from itertools import accumulate

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.mine.association.algorithm import Associations
from darklode.schemas.mining import AssociateSettings

ASSOCIATE = Stage("associate", 2, ("query_terms", "log_queries"), ("associations",))

_CONTENT = """
    SELECT date, sum(digest)::VARCHAR AS digest FROM (
        SELECT date, hash(tenant, query_id)::HUGEINT AS digest FROM log_queries UNION ALL
        SELECT date, hash(tenant, query_id, term, importance)::HUGEINT AS digest
        FROM query_terms JOIN log_queries USING (tenant, query_id)
    ) GROUP BY date ORDER BY date
"""


def associate(tables: Tables, output: Output, settings: AssociateSettings) -> None:
    """Write who lends to whom (ScalingNote, Algorithm 1), each date's associations in a unit of its own.

    An association has the date of the later of its two queries, so a date depends on the queries and terms up to it: a
    new date leaves the earlier ones as they are, a late query redoes its date and all after it.
    """
    totals: Counter[str] = Counter()
    with tables.connect() as connection:
        bases = chained(connection)
        missing = [day for day, basis in bases.items() if not output.stands(str(day), basis)]
        found = Associations(connection, settings, missing[0]) if missing else None
        pieces = _Pieces(found.rows() if found else iter(()))
        for done, (day, basis) in enumerate(bases.items()):
            with output.unit(str(day), basis) as unit:
                if found and not unit.done:
                    unit.facts["kept"] = _write(pieces.of(day), output)
                    unit.facts["cut"] = found.cut.get(day, 0)
            totals.update(unit.facts)
            output.progress(done + 1, len(bases), str(day))
    kept, every = totals["kept"], totals["kept"] + totals["cut"]
    output.count(FunnelStep("associate", "queries", tables.rows("log_queries"), "associations", every))
    crowded = {"key has enough lenders": totals["cut"]} if totals["cut"] else {}
    output.count(FunnelStep("bound lenders", "associations", every, "associations", kept, crowded))


def chained(connection: duckdb.DuckDBPyConnection) -> dict[date, str]:
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
    """Pieces of ascending dates, to be asked for date by date."""

    def __init__(self, pieces: Iterator[tuple[date, pa.Table]]) -> None:
        self._pieces = pieces
        self._ahead = next(pieces, None)

    def of(self, day: date) -> Iterator[pa.Table]:
        """The pieces of one date; those of earlier ones are passed over."""
        while self._ahead and self._ahead[0] <= day:
            if self._ahead[0] == day:
                yield self._ahead[1]
            self._ahead = next(self._pieces, None)
