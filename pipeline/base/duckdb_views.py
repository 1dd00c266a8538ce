"""A run's tables in DuckDB: as a file of views for any DuckDB, and for a single sandboxed query."""

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.artifacts.tables import NO_HIVE, escape_glob, no_rows, patched_sql, select_tables
from darklode.pipeline.base.errors import InputError
from darklode.schemas.table import Table
from darklode.schemas.tables import TABLES

HEAD = """\
-- Every table of this run as a view, for DuckDB 2 and later, from any working directory:
--   duckdb -init views.sql
-- The views find their files through run_folder(). Was the run moved? Name its new folder ('.' is the working
-- directory; write [*] for * , [?] for ? and [[] for [ in a name), here or in a database that holds the views:
"""

S3_HEAD = (
    "-- The run is on S3: INSTALL httpfs, LOAD httpfs and CREATE SECRET (TYPE s3, PROVIDER credential_chain) first.\n"
)


def literal(text: str) -> str:
    """Quote a text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def all_tables(run: Run) -> Tables:
    """Every table of `schemas.tables`; those not written yet are empty."""
    parts = run.parts()
    return Tables(run.store, {name: parts.get(name, []) for name in TABLES})


def views_sql(run: Run) -> str:
    """SQL that creates a view per table of `schemas.tables`; tables that the run does not have are empty.

    Views match all parts in a table's folder, so they follow rebuilds; do not read them during a build.
    """
    parts = run.parts()
    lines = [HEAD + (S3_HEAD if run.store.local is None else "")]
    lines.append(f"CREATE OR REPLACE MACRO run_folder() AS {literal(escape_glob(run.store.url))};\n")
    for name, table in TABLES.items():
        own = select_tables(parts, name)
        rows = {table_name: _rows(TABLES[table_name]) for table_name in own} or {name: no_rows(table)}
        sql = patched_sql(table, rows) if len(rows) > 1 else rows[name]
        lines.append(f"CREATE OR REPLACE VIEW {name} AS {sql};")
    return "\n".join(lines) + "\n"


def _rows(table: Table) -> str:
    columns = ", ".join(f'"{name}"' for name in table.schema.names)
    pattern = literal(f"/tables/{table.name}/**/*.parquet")
    return f"SELECT {columns} FROM read_parquet(run_folder() || {pattern}, {NO_HIVE})"


def query(run: Run, sql: str) -> pa.Table:
    """Answer one SELECT over the run's tables; it can read nothing else and cannot write.

    Columns of the same name are told apart as in DuckDB's subqueries: `text`, `text_1`.

    Raises:
        InputError: DuckDB cannot run it, or it is not a single SELECT.
    """
    tables = all_tables(run)
    with tables.connect(own=True) as connection:
        _lock(connection, run, tables)
        try:
            relation = connection.sql(_select(connection, sql))
            if len(set(relation.columns)) < len(relation.columns):  # rows are dictionaries, which would lose values
                relation = relation.select("*")
            answer: pa.Table = relation.to_arrow_table()
        except duckdb.CatalogException as error:
            raise InputError(f"{error}\n{_tables_of(tables)}") from error
        except duckdb.Error as error:
            raise InputError(str(error)) from error
    return answer


def _tables_of(tables: Tables) -> str:
    """The run's tables in data order."""
    names = [name for name in TABLES if tables.parts(name)]
    return f"Tables of this run: {', '.join(names)}" if names else "This run has no table yet"


def _lock(connection: duckdb.DuckDBPyConnection, run: Run, tables: Tables) -> None:
    """Disable access to files, extensions and Python variables; on S3, tables come through pyarrow."""
    if run.store.local is not None:
        names = dict.fromkeys(part.file for name in TABLES for part in tables.parts(name))
        files = [literal(run.store.path(name)) for name in names]
        connection.execute(f"SET allowed_paths = [{', '.join(files)}]")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _select(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Check that the query is one SELECT: COPY could overwrite the readable files."""
    statements = connection.extract_statements(sql)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise InputError(
            "write one SELECT (or FROM, WITH, DESCRIBE, SUMMARIZE, SHOW): other statements could change the run"
        )
    return statements[0].query
