"""Intermediate results in DuckDB that one function makes and hands to the next, each under a name of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

import duckdb

from darklode.pipeline.base.artifacts import Tables

_NUMBERS = count()


@dataclass(frozen=True)
class Relation:
    """Rows of a connection; in SQL it stands for its name.

    Attributes:
        name: nobody's but this relation's.
    """

    name: str = field(default_factory=lambda: f"relation_{next(_NUMBERS)}")

    def __str__(self) -> str:
        return self.name


def materialize(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    parameters: Mapping[str, object] | None = None,
    /,
    **relations: Relation,
) -> Relation:
    """Keep the rows of a query in a temp table, which spills to disk where memory is short.

    Args:
        connection: holds the relations that the query reads.
        query: with `{name}` where a relation is meant, and `$name` for a parameter.
        parameters: the query's values.
        relations: by their names in the query.
    """
    made = Relation()
    connection.execute(f"CREATE TEMP TABLE {made} AS {query.format(**relations)}", dict(parameters or {}))
    return made


def view(connection: duckdb.DuckDBPyConnection, tables: Tables, table: str) -> Relation:
    """A table of a run as a relation, read where it lies."""
    made = Relation()
    tables.view(connection, made.name, table)
    return made


def drop(connection: duckdb.DuckDBPyConnection, *relations: Relation) -> None:
    """Give back what `materialize` took, once nobody reads it any more."""
    for relation in relations:
        connection.execute(f"DROP TABLE {relation}")
