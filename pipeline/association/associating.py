"""Algorithm 1 of ScalingNote over a whole log, without looking at all pairs."""

from collections.abc import Iterator
from datetime import date

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.association.candidates import find
from pipeline.association.lenders import cut_by_date, keep, pairs_since
from pipeline.association.naming import Names
from pipeline.association.numbering import number
from pipeline.association.wide import find_wide
from schemas.mining import AssociateSettings

PART_ROWS = 200_000
_LEFT_OVER = "click_lenders tops sets wide_terms wide rarest covers mutual placed_terms".split()


class Associations:
    """The associations of the queries in a connection's `log_queries` and `query_terms`.

    Everything grows with the queries and their associations, none with the pairs of queries, and spills to disk past
    the connection's memory limit; only the queries' ids and best terms are kept in memory (`Names`).

    Attributes:
        cut: how many associations `max_lenders` left out, by date.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, settings: AssociateSettings) -> None:
        self._connection = connection
        number(connection)
        find(connection, settings)
        find_wide(connection, settings)
        keep(connection, settings.max_lenders)
        self._names = Names(connection)
        self.cut: dict[date, int] = cut_by_date(connection)
        for table in _LEFT_OVER:
            connection.execute(f"DROP TABLE {table}")

    def since(self, first: date = date.min) -> Iterator[tuple[date, pa.Table]]:
        """Those of which one query was first searched on `first` or later, by date, tenant, query, kind and lender.

        Yields:
            A date and at most `PART_ROWS` rows of `associations` of that date; dates ascend.
        """
        reader = self._connection.sql(pairs_since(), params={"since": first}).to_arrow_reader(PART_ROWS)
        for day, pairs in by_date(reader):
            yield day, self._names.rows(pairs)


def by_date(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[date, pa.Table]]:
    """Cut rows that are ordered by `date` into pieces of one date and at most `PART_ROWS` rows.

    DuckDB cuts its batches by its number of threads; cut here, the pieces are the same on every machine.
    """
    waiting: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        waiting = pa.concat_tables([waiting, rows]) if waiting else rows
        while waiting.num_rows:
            day = waiting["date"][0]
            same = pc.equal(waiting["date"], day)
            length = pc.sum(same).as_py()
            if length == waiting.num_rows and length < PART_ROWS:
                break
            size = min(length, PART_ROWS)
            yield day.as_py(), waiting.slice(0, size)
            waiting = waiting.slice(size)
    if waiting:
        yield waiting["date"][0].as_py(), waiting
