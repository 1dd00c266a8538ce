"""A run's labels in the formats of other tools, all of them or without those of the test split.

The corpus of a benchmark is the chunks: what was retrieved and judged. Formats made of the triplets alone serve mined
runs too, whose passages are documents. A new format is a file of `kinds`, or an entry point of `darklode.exports`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
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

_HIDDEN = ("qrels", "rankings")  # rankings too: they name what was pooled, and every positive is of the pool

NAMED = 5
"""Tenants that an error lists."""

_TEST = """
    CREATE OR REPLACE VIEW test_queries AS SELECT tenant, query_id FROM queries_by_split WHERE split = 'test'
"""


def format_of(name: str) -> Format:
    """What declares a format.

    Raises:
        ExportError: there is none of this name, or what another package registered is none.
    """
    if name not in EXPORTS.names():
        close = get_close_matches(name.lower(), EXPORTS.names(), n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"the formats are {', '.join(EXPORTS.names())}"
        raise UnknownFormat(f"there is no export format {name!r}; {hint}")
    try:
        export_format = EXPORTS.load(name)
    except UnknownKind as error:
        raise ExportError(str(error)) from error
    if not isinstance(export_format, Format):
        raise ExportError(f"export format {name}: {export_format!r} must be a Format")
    return export_format


def export(run: Run, format: str, to: Path, withhold_test: Path | None = None, tenant: str | None = None) -> list[Path]:
    """Write a run's labels in another tool's format: all files or none.

    Args:
        run: a run whose stages up to the needed tables are complete.
        format: its name.
        to: a folder that is empty or does not exist.
        withhold_test: another such folder, for the same format with the labels and rankings of the test split alone;
            `to` then has all but these. Neither may lie in the other.
        tenant: whose rows alone; None: those of all, with ids that name the tenant where there are several.

    Returns:
        The files written, sorted.

    Raises:
        ExportError: the format or the tenant is unknown, a folder is not empty or cannot be made, the run lacks a
            table, nothing in it is relevant, or the format has no labels of the test split to withhold.
    """
    kind = format_of(format)
    tables, to = _open(run, format, kind, tenant), to.expanduser().resolve()
    if withhold_test is None:
        with _built(kind, tables, to) as built:
            built.replace(to)
        return _files(to)
    public, withheld = _public_and_withheld(run, format, kind, tenant)
    withheld_folder = withhold_test.expanduser().resolve()
    if to.is_relative_to(withheld_folder) or withheld_folder.is_relative_to(to):
        raise ExportError(
            f"{withheld_folder} and {to} lie in one another; keep the test labels where the public folder is not"
        )
    with _built(kind, withheld, withheld_folder) as built_kept, _built(kind, public, to) as built:
        built_kept.replace(withheld_folder)
        built.replace(to)
    return sorted(_files(to) + _files(withheld_folder))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def _built(kind: Format, tables: Tables, to: Path) -> Iterator[Path]:
    """The folder in that format, beside its place; it goes away unless it is moved there."""
    with temporary_folder_beside(to) as built:
        kind.write(tables, built)
        yield built


def _open(run: Run, format: str, kind: Format, tenant: str | None) -> Tables:
    present = run.parts()
    missing = ", ".join(table for table in kind.tables if table not in present)
    if missing:
        command = "`darklode build`" if len(kind.tables) > 1 else "`darklode build` or `darklode mine`"
        raise ExportError(f"{run.store.url} lacks {missing}, which {format} needs; run {command} to the end")
    if tenant is not None:
        _check_tenant(run, kind, tenant)
    return _TenantTables(run, kind.tables, tenant)


def _check_tenant(run: Run, kind: Format, tenant: str) -> None:
    some = kind.tables[0]
    tenants = run.tables(some).sql(f"SELECT DISTINCT tenant FROM {some} ORDER BY tenant")["tenant"].to_pylist()
    if tenant not in tenants:
        close = get_close_matches(tenant, tenants, n=1, cutoff=0.5) or tenants[:NAMED]
        more = f" and {len(tenants) - NAMED} more" if len(tenants) > NAMED and close == tenants[:NAMED] else ""
        raise ExportError(f"{run.store.url} has no tenant {tenant!r}; it has {', '.join(map(repr, close))}{more}")


class _TenantTables(Tables):
    """Tables of a run with the rows of one tenant, or of all."""

    def __init__(self, run: Run, names: tuple[str, ...], tenant: str | None) -> None:
        super().__init__(run.store, select_tables(run.parts(), *names))
        self._tenant = tenant

    def view(self, connection: duckdb.DuckDBPyConnection, name: str, table: str) -> None:
        """Make one of the tables a view of the connection, with the tenant's rows alone."""
        if self._tenant is None:
            super().view(connection, name, table)
            return
        super().view(connection, f"{name}_of_tenants", table)
        rows = f"FROM {name}_of_tenants WHERE tenant = {literal(self._tenant)}"
        connection.execute(f'CREATE OR REPLACE VIEW "{name}" AS {rows}')


class _SplitTables(_TenantTables):
    """Tables of a run whose labels and rankings are those of the test queries only, or of all but them."""

    def __init__(self, run: Run, names: tuple[str, ...], tenant: str | None, test: bool) -> None:
        super().__init__(run, names, tenant)
        self._join = "SEMI" if test else "ANTI"

    def view(self, connection: duckdb.DuckDBPyConnection, name: str, table: str) -> None:
        """Make one of the tables a view of the connection; of labels and rankings, the rows that are not hidden."""
        if table not in _HIDDEN:
            super().view(connection, name, table)
            return
        super().view(connection, "queries_by_split", "queries")
        connection.execute(_TEST)
        super().view(connection, f"{name}_of_all", table)
        rows = f"FROM {name}_of_all {self._join} JOIN test_queries USING (tenant, query_id)"
        connection.execute(f'CREATE OR REPLACE VIEW "{name}" AS {rows}')


def _public_and_withheld(run: Run, format: str, kind: Format, tenant: str | None) -> tuple[Tables, Tables]:
    """The tables of which to make the folder to publish, and those for the folder to keep.

    Args:
        run: a run that has the tables.
        format: the format's name.
        kind: what it is made of.
        tenant: whose rows alone; None: everybody's.

    Raises:
        ExportError: the format has no labels of the test split, or one of the two folders would have no positive.
    """
    if not kind.test_labels:
        raise ExportError(f"{format} holds no labels of the test split; leave --withhold-test out")
    names = kind.tables
    public, withheld = (_SplitTables(run, names, tenant, test=test) for test in (False, True))
    for tables, where in ((public, "outside its test split, to publish"), (withheld, "in its test split, to withhold")):
        require(tables, "qrels", "relevance > 0", f"the run has no positive {where}; leave --withhold-test out")
    return public, withheld
