"""Export a run's labels to the formats of other tools, with or without those of the test split.

The corpus of a benchmark consists of its chunks. Formats that need only triplets also work for mined runs, whose
passages are documents. To add a format, add a file to `kinds` or an entry point to `darklode.exports`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import duckdb

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.artifacts.tables import select_tables
from darklode.pipeline.base.duckdb_views import literal
from darklode.pipeline.base.errors import ExportError, UnknownFormat
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.writers import require, temporary_folder_beside
from darklode.schemas.kinds import KindGroup, UnknownKind

EXPORTS = KindGroup("exports", "darklode.pipeline.export.kinds", separator="-")

_WITHHELD_TABLES = ("qrels", "rankings")  # rankings show the pool, which contains every positive

MAX_TENANTS = 5
"""Maximum number of tenants listed in an error message."""

_CREATE_TEST_QUERIES = """
    CREATE OR REPLACE VIEW test_queries AS SELECT tenant, query_id FROM queries_by_split WHERE split = 'test'
"""


def format_of(name: str) -> Format:
    """Load a format by name.

    Raises:
        ExportError: unknown name, or the registered object is not a `Format`.
    """
    if name not in EXPORTS.names():
        close = get_close_matches(name.lower(), EXPORTS.names(), n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"the formats are {', '.join(EXPORTS.names())}"
        raise UnknownFormat(f"unknown export format {name!r}; {hint}")
    try:
        export_format = EXPORTS.load(name)
    except UnknownKind as error:
        raise ExportError(str(error)) from error
    if not isinstance(export_format, Format):
        raise ExportError(f"export format {name}: {export_format!r} must be a Format")
    return export_format


def export(
    run: Run,
    format: str,
    to: Path,
    withhold_test: Path | None = None,
    tenant: str | None = None,
    options: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write a run's labels in another tool's format; all files are written, or none.

    Args:
        run: a run with the required tables.
        format: name of the format.
        to: a folder that is empty or does not exist.
        withhold_test: another such folder, for the labels and rankings of the test split; `to` then has all others.
            Neither folder may contain the other.
        tenant: export only this tenant; None: all, with ids that contain the tenant if there are several.
        options: settings of the format, by name; see `Format.options`.

    Returns:
        The files written, sorted.

    Raises:
        ExportError: unknown format, option or tenant, a folder is not empty or cannot be created, a table is missing,
            there are no positives, or the format has no labels of the test split.
    """
    kind = _with_options(format, options or {})
    tables = _open(run, format, kind, tenant)
    to = to.expanduser().resolve()
    if withhold_test is None:
        with _built(kind, tables, to) as built:
            built.replace(to)
        return _files(to)
    public, withheld = _public_and_withheld(run, format, kind, tenant)
    withheld_folder = withhold_test.expanduser().resolve()
    if to.is_relative_to(withheld_folder) or withheld_folder.is_relative_to(to):
        raise ExportError(f"{withheld_folder} and {to} contain one another; use separate folders")
    with _built(kind, withheld, withheld_folder) as built_withheld, _built(kind, public, to) as built:
        built_withheld.replace(withheld_folder)
        built.replace(to)
    return sorted(_files(to) + _files(withheld_folder))


def _with_options(format: str, options: Mapping[str, str]) -> Format:
    """Load a format and bind its options; raises ExportError for an option that it does not have."""
    kind = format_of(format)
    for name in options:
        if name not in kind.options:
            formats = ", ".join(each for each in EXPORTS.own_kinds() if name in format_of(each).options)
            raise ExportError(f"{format} has no option --{name}; it belongs to {formats}")
    return replace(kind, write=partial(kind.write, **options))


def _files(folder: Path) -> list[Path]:
    """All files below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def _built(kind: Format, tables: Tables, to: Path) -> Iterator[Path]:
    """Write the format to a temporary folder, which is deleted unless it is moved to its target."""
    with temporary_folder_beside(to) as built:
        kind.write(tables, built)
        yield built


def _open(run: Run, format: str, kind: Format, tenant: str | None) -> Tables:
    """Open the tables that a format reads; raises ExportError if a table or the tenant is missing."""
    parts = run.parts()
    missing = ", ".join(table for table in kind.tables if table not in parts)
    if missing:
        command = "`darklode build`" if len(kind.tables) > 1 else "`darklode build` or `darklode mine`"
        raise ExportError(f"{run.store.url} has no {missing}, required by {format}; run {command} to completion")
    if tenant is not None:
        _check_tenant(run, kind, tenant)
    return _TenantTables(run, kind.tables, tenant)


def _check_tenant(run: Run, kind: Format, tenant: str) -> None:
    """Raise ExportError if a run does not have a tenant; the message names similar ones."""
    table = kind.tables[0]
    tenants = run.tables(table).sql(f"SELECT DISTINCT tenant FROM {table} ORDER BY tenant")["tenant"].to_pylist()
    if tenant not in tenants:
        suggestions = get_close_matches(tenant, tenants, n=1, cutoff=0.5) or tenants[:MAX_TENANTS]
        omitted = (
            f" and {len(tenants) - MAX_TENANTS} more"
            if len(tenants) > MAX_TENANTS and suggestions == tenants[:MAX_TENANTS]
            else ""
        )
        raise ExportError(
            f"{run.store.url} has no tenant {tenant!r}; it has {', '.join(map(repr, suggestions))}{omitted}"
        )


class _TenantTables(Tables):
    """Tables of a run, restricted to a tenant if one is given."""

    def __init__(self, run: Run, names: tuple[str, ...], tenant: str | None) -> None:
        super().__init__(run.store, select_tables(run.parts(), *names))
        self._tenant = tenant

    def view(self, connection: duckdb.DuckDBPyConnection, name: str, table: str) -> None:
        """Create a view of a table with the tenant's rows."""
        if self._tenant is None:
            super().view(connection, name, table)
            return
        super().view(connection, f"{name}_of_tenants", table)
        rows = f"FROM {name}_of_tenants WHERE tenant = {literal(self._tenant)}"
        connection.execute(f'CREATE OR REPLACE VIEW "{name}" AS {rows}')


class _SplitTables(_TenantTables):
    """Tables of a run with labels and rankings of the test queries only, or of all other queries."""

    def __init__(self, run: Run, names: tuple[str, ...], tenant: str | None, test: bool) -> None:
        super().__init__(run, names, tenant)
        self._join = "SEMI" if test else "ANTI"

    def view(self, connection: duckdb.DuckDBPyConnection, name: str, table: str) -> None:
        """Create a view of a table; labels and rankings are restricted to the split."""
        if table not in _WITHHELD_TABLES:
            super().view(connection, name, table)
            return
        super().view(connection, "queries_by_split", "queries")
        connection.execute(_CREATE_TEST_QUERIES)
        super().view(connection, f"{name}_of_all", table)
        rows = f"FROM {name}_of_all {self._join} JOIN test_queries USING (tenant, query_id)"
        connection.execute(f'CREATE OR REPLACE VIEW "{name}" AS {rows}')


def _public_and_withheld(run: Run, format: str, kind: Format, tenant: str | None) -> tuple[Tables, Tables]:
    """The tables for the public folder and those for the withheld folder.

    Args:
        run: a run with the tables.
        format: name of the format.
        kind: the format.
        tenant: export only this tenant; None: all.

    Raises:
        ExportError: the format has no labels of the test split, or a folder would have no positives.
    """
    if not kind.test_labels:
        raise ExportError(f"{format} has no labels of the test split; omit --withhold-test")
    names = kind.tables
    public, withheld = (_SplitTables(run, names, tenant, test=test) for test in (False, True))
    for tables, where in ((public, "outside its test split, to publish"), (withheld, "in its test split, to withhold")):
        require(tables, "qrels", "relevance > 0", f"the run has no positive {where}; omit --withhold-test")
    return public, withheld
