"""Intermediate results in DuckDB: temp tables and views with unique names, which functions pass to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

import duckdb

from darklode.pipeline.base.artifacts import Tables

_NUMBERS = count()  # one counter per process, so that no two relations of a connection share a name


@dataclass(frozen=True)
class Relation:
    """A temp table or view of a DuckDB connection; formats as its name, for use in SQL strings.

    Attributes:
        name: name in SQL, unique within the process.
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
    """Run a query and store its rows in a temp table, which DuckDB spills to disk if memory is short.

    Args:
        connection: connection that holds the relations of the query.
        query: SQL with a placeholder `{name}` for each relation and `$name` for each parameter. Literal braces must
            be doubled.
        parameters: values of the parameters.
        relations: relations by placeholder name.
    """
    result = Relation()
    connection.execute(f"CREATE TEMP TABLE {result} AS {query.format(**relations)}", dict(parameters or {}))
    return result


def view(connection: duckdb.DuckDBPyConnection, tables: Tables, table: str) -> Relation:
    """Create a view of a table of a run; its files are read when the view is queried."""
    table_view = Relation()
    tables.view(connection, table_view.name, table)
    return table_view


def drop(connection: duckdb.DuckDBPyConnection, *relations: Relation) -> None:
    """Drop temp tables of `materialize` to free their memory and disk space."""
    for relation in relations:
        connection.execute(f"DROP TABLE {relation}")
