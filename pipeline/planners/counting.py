"""The terms of documents and queries in DuckDB, from which the log planner counts."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

import duckdb
import pyarrow as pa

from pipeline.planners.tokens import Tokens
from pipeline.terms import is_pair

ROWS = pa.schema(
    [("tenant", pa.string()), ("id", pa.string()), ("term", pa.string()), ("n", pa.int32()), ("pair", pa.bool_())]
)


def count_into(connection: duckdb.DuckDBPyConnection, table: str, texts: Iterable[pa.Table]) -> None:
    """Make a table of how often each text holds each term, alone and as the pair that it makes with the next one.

    Args:
        connection: gets the table: tenant, id, term, n, pair; a pair's words are separated by a space.
        table: its name.
        texts: rows of tenant, id and text; a missing text is empty.
    """
    tokens = Tokens()
    connection.register("no_rows", ROWS.empty_table())
    connection.execute(f"CREATE TABLE {table} AS FROM no_rows")
    for rows in texts:
        connection.register("counted", _counted(rows, tokens))
        connection.execute(f"INSERT INTO {table} FROM counted")
        connection.unregister("counted")
    connection.unregister("no_rows")


def _counted(rows: pa.Table, tokens: Tokens) -> pa.Table:
    held: list[tuple[int, str, int, bool]] = []
    for at, text in enumerate(rows["text"].to_pylist()):
        terms = tokens.of(text or "")
        held += [(at, term, n, False) for term, n in Counter(terms).items()]
        held += [(at, pair, n, True) for pair, n in Counter(_pairs(terms)).items()]
    at_row = pa.array([place for place, *_ in held], pa.int64())
    columns = {
        "tenant": rows["tenant"].take(at_row),
        "id": rows["id"].take(at_row),
        "term": [term for _, term, _, _ in held],
        "n": [n for _, _, n, _ in held],
        "pair": [pair for *_, pair in held],
    }
    return pa.table(columns, schema=ROWS)


def _pairs(terms: list[str]) -> Iterator[str]:
    for one, other in pairwise(terms):
        if one != other and not (is_pair(one) or is_pair(other)):
            yield f"{one} {other}"
