"""Rows of a database: a table, or the result of the user's SQL statement, read with a cursor on the server.

SQLAlchemy makes the SQL of all databases; names are quoted by their dialect and values are bound. Transactions are
read-only where the database has them (PostgreSQL, MySQL); files (SQLite, DuckDB) are opened read-only.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from darklode.pipeline.base.errors import DarklodeError, InputError, MissingPart, SettingsError
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.base.types import Rows
from darklode.pipeline.ingest.sources.rows import BATCH_ROWS, DayRange
from darklode.pipeline.retrieve.retrievers.sql_engine import database_url, missing_driver, password_of

if TYPE_CHECKING:
    from sqlalchemy import URL, ColumnClause, Connection, Engine, Select
    from sqlalchemy.ext.asyncio import AsyncEngine

TABLE, PASSWORD_ENV = "table", "password_env"
"""Options of an address that are not the driver's."""
FILE_DATABASES = frozenset({"sqlite", "duckdb"})
MILLISECONDS_FROM = 10**11
"""Numbers from here on are milliseconds since 1970, smaller ones seconds, as in `timestamps`."""
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class DatabaseAddress:
    """A database and what to read from it.

    Attributes:
        url: address with a driver, without password.
        table: table or view, perhaps with its schema; empty: the statement.
        statement: SQL of the user; empty: the table.
        password_env: environment variable with the password; empty: none.
        setting: setting of the statement, for messages.
    """

    url: URL
    table: str
    statement: str
    password_env: str
    setting: str

    @property
    def name(self) -> str:
        """Address without options, for messages."""
        shown = self.url.set(drivername=self.backend, query={}).render_as_string()
        return f"{shown}, table {self.table}" if self.table else f"{shown}, {self.setting}"

    @property
    def backend(self) -> str:
        """Name of the database system, such as postgresql."""
        return self.url.drivername.partition("+")[0]


def parse_database(address: str, statement: str, setting: str) -> DatabaseAddress:
    """The parts of a database's address; the statement is read only if the address names no table.

    Raises:
        InputError: the address is invalid, the file does not exist, or there is neither table nor statement.
        MissingPart: the driver is not installed.
    """
    dsn = re.sub(r"^postgres(?=[:+])", "postgresql", address)
    try:
        url = database_url(dsn)
    except SettingsError as error:
        raise InputError(f"{address.partition(':')[0]}://…: {error}".replace("dsn", "the address")) from None
    if url.drivername == "sqlite+aiosqlite":  # one reader: the driver of the standard library is faster
        url = url.set(drivername="sqlite")
    options = {name: value for name in (TABLE, PASSWORD_ENV) if isinstance(value := url.query.get(name), str)}
    url = url.difference_update_query([TABLE, PASSWORD_ENV])
    table = options.get(TABLE, "")
    parsed = DatabaseAddress(
        url, table, "" if table else statement.strip().rstrip(";"), options.get(PASSWORD_ENV, ""), setting
    )
    if not parsed.table and not parsed.statement:
        raise InputError(f"{parsed.name}: nothing to read; add ?table=NAME to the address, or set {setting}")
    if parsed.backend in FILE_DATABASES and not Path(url.database or "").is_file():
        raise InputError(f"{url.database or address} does not exist; an absolute path begins with four slashes")
    if problem := "" if parsed.backend in FILE_DATABASES else _missing_driver(url):
        raise MissingPart(problem)
    return parsed


def _missing_driver(url: URL) -> str:
    """What to install for an address; empty if its driver is there."""
    from sqlalchemy.exc import NoSuchModuleError

    try:
        driver = url.get_dialect().driver
    except (NoSuchModuleError, ImportError):
        return f"{url.drivername} needs SQLAlchemy's dialect of that name, which is not installed"
    if "+" in url.drivername:
        return f"{url.drivername}:// needs the driver {driver}: pip install {driver}" if missing_driver(url) else ""
    modules = {"mysqldb": "MySQLdb", "mariadbconnector": "mariadb", "cx_oracle": "cx_Oracle"}
    if find_spec(modules.get(driver, driver)):
        return ""
    return f"{url.drivername}:// needs the driver {driver}; install it, or name another, such as mysql+pymysql://"


class DatabaseTable:
    """Rows of a database; see `RowTable`.

    Args:
        address: what to read.
        time_names: names of the column with the time of an event, in order of preference; empty: rows have no day.

    Raises:
        MissingPart: the password is missing.
    """

    def __init__(self, address: DatabaseAddress, time_names: Sequence[str] = ()) -> None:
        self._address, self._time_names = address, time_names
        self._password = password_of(address.password_env, address.name)

    @cached_property
    def time_column(self) -> str | None:
        """See `RowTable`: the column with the first of the names, in any case."""
        if not self._time_names:
            return None
        present = {name.casefold(): name for name in self._columns}
        return next((present[name.casefold()] for name in self._time_names if name.casefold() in present), None)

    @cached_property
    def _columns(self) -> list[str]:
        return [name for batch in self._query(_select(self._address, limit=1)) for row in batch for name in row]

    def version(self) -> str | None:
        """See `RowTable`: databases have none."""
        return None

    def batches(self, days: DayRange, limit: int | None = None) -> Iterator[Rows]:
        """See `RowTable`: in the order of the primary key (DuckDB: of insertion), or of the statement."""
        statement = _select(self._address, limit=limit)
        if self.time_column and limit is None:
            is_mysql = self._address.backend in {"mysql", "mariadb"}
            rows = _select(self._address, is_wrapped=True)
            statement = _in_days(rows, self.time_column, self._bounds(days), is_mysql=is_mysql)
        yield from self._query(statement, order_by_key=not self.time_column and limit is None)

    def _bounds(self, days: DayRange) -> tuple[Any, Any]:
        """The bounds of some days as values of the time column's type; None where there is none, or no such type."""
        assert self.time_column is not None
        if days.bounds == (None, None):
            return None, None
        sample = [row for batch in self._query(_time_sample(self._address, self.time_column)) for row in batch]
        value = next((item for row in sample for item in row.values()), None)
        begin, end = (_bound(day, value) if day else None for day in days.bounds)
        return begin, end

    def _query(self, statement: Select[Any], *, order_by_key: bool = False) -> Iterator[Rows]:
        """Rows of a SELECT in batches.

        Raises:
            DarklodeError: the database does not answer, or rejects the statement.
        """
        try:
            if self._address.backend == "duckdb":
                yield from _duckdb_batches(self._address, statement)
            elif (url := _connection_url(self._address.url, self._password)).get_dialect().is_async:
                with Background() as background:
                    yield from background.iterate(_async_batches(self._address, url, statement, order_by_key))
            else:
                yield from _sync_batches(self._address, url, statement, order_by_key=order_by_key)
        except DarklodeError:
            raise
        except Exception as error:  # drivers raise errors of their own when they connect
            raise DarklodeError(f"{self._address.name}: {_reason(error)}; check the address, or run again") from None


def _connection_url(url: URL, password: str | None) -> URL:
    """The address that is connected to: with the password, and read-only for a file."""
    if url.drivername.startswith("sqlite"):
        return url.set(database=f"file:{quote(url.database or '')}").update_query_dict({"mode": "ro", "uri": "true"})
    return url.set(password=password)


def _select(address: DatabaseAddress, *, limit: int | None = None, is_wrapped: bool = False) -> Select[Any]:
    """SELECT of all columns of the table or statement.

    Args:
        address: what to read.
        limit: maximum number of rows.
        is_wrapped: make the statement a subquery, so that conditions can be added; its order is lost.
    """
    from sqlalchemy import literal_column, select, table, text
    from sqlalchemy.sql import quoted_name

    if address.table:
        schema, _, name = address.table.rpartition(".")
        # DuckDB reserves other words than the dialect that makes its SQL, and ignores case in quotes, too.
        is_quoted = True if address.backend == "duckdb" else None
        source: Any = table(quoted_name(name, is_quoted), schema=quoted_name(schema, is_quoted) if schema else None)
        return select(literal_column("*")).select_from(source).limit(limit)
    literal = address.statement.replace(":", r"\:")  # a colon in it is no parameter
    if limit is None and not is_wrapped:
        return text(literal)  # type: ignore[return-value]
    return select(literal_column("*")).select_from(text(f"({literal}\n) AS source")).limit(limit)


def _in_days(statement: Select[Any], time_column: str, bounds: tuple[Any, Any], *, is_mysql: bool) -> Select[Any]:
    """Restrict a SELECT to times from `bounds[0]` and before `bounds[1]`, and sort it by time."""
    from sqlalchemy import DateTime, bindparam, column
    from sqlalchemy.sql import quoted_name

    times: ColumnClause[Any] = column(quoted_name(time_column, quote=True))
    for name, value, condition in (("first", bounds[0], times.__ge__), ("last", bounds[1], times.__lt__)):
        if value is not None:
            has_zone = isinstance(value, datetime) and value.tzinfo is not None
            statement = statement.where(condition(bindparam(name, value, DateTime(True) if has_zone else None)))
    # Rows without a time come last, with those of the last day; MySQL has no NULLS LAST.
    return statement.order_by(*((times.is_(None), times) if is_mysql else (times.nulls_last(),)))


def _time_sample(address: DatabaseAddress, time_column: str) -> Select[Any]:
    from sqlalchemy import column
    from sqlalchemy.sql import quoted_name

    times: ColumnClause[Any] = column(quoted_name(time_column, quote=True))
    statement = _select(address, limit=1) if address.table else _select(address, is_wrapped=True).limit(1)
    return statement.with_only_columns(times).where(times.is_not(None))


def _bound(day: date, sample: Any) -> Any:
    """The beginning of a day as a value of the same type as the sample; None if it cannot be compared with it."""
    midnight = datetime.combine(day, time(), UTC)
    if isinstance(sample, datetime):
        return midnight if sample.tzinfo else midnight.replace(tzinfo=None)
    if isinstance(sample, date):
        return day
    if isinstance(sample, int | float | Decimal) and not isinstance(sample, bool):
        seconds = int(midnight.timestamp())
        return seconds * 1000 if sample >= MILLISECONDS_FROM else seconds
    return day.isoformat() if isinstance(sample, str) and _ISO_DATE.match(sample) else None


def _keyed(address: DatabaseAddress, connection: Connection, statement: Select[Any]) -> Select[Any]:
    """Sort a table by its primary key, so that unchanged rows come in an unchanged order."""
    from sqlalchemy import column, inspect
    from sqlalchemy.exc import SQLAlchemyError

    if not address.table:
        return statement
    schema, _, name = address.table.rpartition(".")
    try:
        key = inspect(connection).get_pk_constraint(name, schema=schema or None)["constrained_columns"]
    except (SQLAlchemyError, NotImplementedError, KeyError):  # a view
        return statement
    return statement.order_by(*map(column, key))


def _rows(address: DatabaseAddress, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Rows:
    if repeated := [name for name in names if list(names).count(name) > 1]:
        raise InputError(f"{address.name} returns several columns named {repeated[0]!r}; rename all but one with AS")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _sync_batches(address: DatabaseAddress, url: URL, statement: Select[Any], *, order_by_key: bool) -> Iterator[Rows]:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine: Engine = create_engine(url, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            _make_read_only(connection)
            ordered = _keyed(address, connection, statement) if order_by_key else statement
            with connection.execution_options(yield_per=BATCH_ROWS).execute(ordered) as result:
                for rows in result.partitions():
                    yield _rows(address, list(result.keys()), rows)
    finally:
        engine.dispose()


async def _async_batches(
    address: DatabaseAddress, url: URL, statement: Select[Any], order_by_key: bool
) -> AsyncGenerator[Rows]:
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    engine: AsyncEngine = create_async_engine(url, poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                await connection.execution_options(postgresql_readonly=True)
            await connection.run_sync(_make_read_only)
            if order_by_key:
                statement = await connection.run_sync(lambda sync: _keyed(address, sync, statement))
            result = await connection.stream(statement, execution_options={"yield_per": BATCH_ROWS})
            async for rows in result.partitions():
                yield _rows(address, list(result.keys()), rows)
    finally:
        await engine.dispose()


def _make_read_only(connection: Connection) -> None:
    """Forbid writes in the next transaction, where the database can."""
    from sqlalchemy import text

    dialect = connection.engine.dialect.name
    if dialect in {"mysql", "mariadb"}:
        connection.execute(text("SET SESSION TRANSACTION READ ONLY"))
        connection.rollback()
    elif dialect == "sqlite":
        connection.execute(text("PRAGMA query_only = ON"))
    elif dialect == "postgresql" and not connection.engine.dialect.is_async:
        connection.execution_options(postgresql_readonly=True)


def _duckdb_batches(address: DatabaseAddress, statement: Select[Any]) -> Iterator[Rows]:
    """Rows of a DuckDB file, which is opened read-only and without access to other files."""
    import duckdb
    from sqlalchemy.dialects import postgresql

    compiled = statement.compile(dialect=postgresql.dialect(paramstyle="numeric_dollar"))  # type: ignore[no-untyped-call]
    values = [compiled.params[name] for name in compiled.positiontup or ()]
    config: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": False}
    with duckdb.connect(address.url.database or "", read_only=True, config=config) as connection:
        for batch in connection.sql(str(compiled), params=values).to_arrow_reader(BATCH_ROWS):
            columns = [column.to_pylist() for column in batch.columns]
            yield _rows(address, batch.schema.names, list(zip(*columns, strict=True)))


def _reason(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    message = re.sub(r"^<class '[^']*'>: ", "", str(cause))  # SQLAlchemy's adapter of asyncpg puts it there
    return " ".join(message.split())[:300] or type(cause).__name__
