"""A database with full-text or vector search, asked with a SQL statement."""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from darklode.pipeline.base.errors import DarklodeError, MissingPart, SettingsError
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.base.remote.client import FIRST_WAIT, LONGEST_WAIT
from darklode.pipeline.base.remote.concurrency import jittered_delay
from darklode.pipeline.retrieve.retrievers.external import Answer, LiveSearch

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncEngine

ASYNC_DRIVERS = {"postgresql": "asyncpg", "sqlite": "aiosqlite"}
"""Drivers by database; Prefect brings both. A DSN may name another asynchronous one, such as mysql+aiomysql."""

_TRANSIENT_STATES = ("08", "40", "53", "57P")
"""SQLSTATE classes of PostgreSQL that may pass: connection, rollback, resources, shutdown and start."""


@dataclass(frozen=True)
class Database:
    """A database and how it is asked.

    Attributes:
        section: settings section, for messages.
        dsn: SQLAlchemy URL without password.
        password_env: environment variable with the password; empty: none, or the driver's own (PGPASSWORD).
        statement: SQL with the parameters :query, :k and, if needed, :tenant.
        max_concurrency: maximum number of connections.
        timeout: seconds for a query.
        retry_timeout: seconds of failed retries after which the run stops.
    """

    section: str
    dsn: str
    password_env: str
    statement: str
    max_concurrency: int
    timeout: float
    retry_timeout: float


def database_url(dsn: str) -> URL:
    """The SQLAlchemy URL of a DSN, with an asynchronous driver.

    Raises:
        SettingsError: it is invalid, or has a password.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(dsn)
    except ArgumentError:
        raise SettingsError("dsn must be a URL such as postgresql://user@host:5432/database") from None
    if url.password is not None or "password" in url.query:
        raise SettingsError("dsn must not contain a password: set password_env to the variable that holds it")
    driver = ASYNC_DRIVERS.get(url.drivername)
    return url.set(drivername=f"{url.drivername}+{driver}") if driver else url


def password_of(password_env: str, needed_by: str) -> str | None:
    """The password from the environment; None if there is none.

    Raises:
        MissingPart: the variable is not set.
    """
    password = os.environ.get(password_env, "") if password_env else ""
    if password_env and not password:
        raise MissingPart(f"{needed_by} needs a password: set the environment variable {password_env}")
    return password or None


def missing_driver(url: URL) -> str:
    """What to install for a DSN; empty if its driver is there."""
    driver = url.drivername.partition("+")[2]
    if driver and find_spec(driver):
        return ""
    return (
        f"dsn {url.drivername} needs an asynchronous driver, such as postgresql+asyncpg: pip install {driver or 'it'}"
    )


class SqlSearch(LiveSearch):
    """A statement whose first column is the id and whose second, if there is one, the score; best rows first.

    PostgreSQL runs it in a read-only transaction.

    Args:
        name: name of the retriever.
        database: the database.
        tenant: value of :tenant.
        index_version: version of the searched table, by the settings.

    Raises:
        MissingPart: password or driver is missing.
        SettingsError: the DSN is invalid.
    """

    def __init__(self, name: str, database: Database, tenant: str, index_version: str | None = None) -> None:
        url = database_url(database.dsn)
        if problem := missing_driver(url):
            raise MissingPart(problem)
        self.where = f"{name} at {url.render_as_string()}"
        self._url = url.set(password=password_of(database.password_env, self.where))
        self._database, self._tenant, self._index_version = database, tenant, index_version

    def version(self) -> str | None:
        """See `LiveSearch`: that of the settings."""
        return self._index_version

    def search(self, queries: Sequence[str], k: int) -> Iterator[tuple[int, Answer]]:
        """See `LiveSearch`. Lost connections, timeouts and a starting server are retried.

        Raises:
            DarklodeError: the statement fails, or the database has not answered for `retry_timeout` seconds.
        """
        with Background() as background:
            yield from background.iterate(self._answers(queries, k))

    async def _answers(self, queries: Sequence[str], k: int) -> AsyncGenerator[tuple[int, Answer]]:
        from sqlalchemy.ext.asyncio import create_async_engine

        n_connections = self._database.max_concurrency
        is_pooled = not self._url.drivername.startswith("sqlite")
        options = {"pool_size": n_connections, "max_overflow": 0} if is_pooled else {}
        engine = create_async_engine(self._url, pool_pre_ping=True, **options)
        free = asyncio.Semaphore(n_connections)

        async def answer(number: int) -> tuple[int, Answer]:
            async with free:
                return number, await self._answer(engine, queries[number], k)

        tasks = [asyncio.create_task(answer(number)) for number in range(len(queries))]
        try:
            for finished in asyncio.as_completed(tasks):
                yield await finished
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await engine.dispose()

    async def _answer(self, engine: AsyncEngine, query: str, k: int) -> Answer:
        since, tries = time.monotonic(), 0
        while True:
            try:
                async with asyncio.timeout(self._database.timeout):
                    return self._read(await self._rows(engine, query, k), query, k)
            except DarklodeError:
                raise
            except Exception as error:  # drivers raise errors of their own when they connect
                self._check(error, query, time.monotonic() - since)
            await asyncio.sleep(jittered_delay(tries, FIRST_WAIT, LONGEST_WAIT))
            tries += 1

    async def _rows(self, engine: AsyncEngine, query: str, k: int) -> Sequence[Sequence[Any]]:
        from sqlalchemy import text

        statement = text(self._database.statement)
        values = {"query": query, "k": k, "tenant": self._tenant}
        parameters = {name: value for name, value in values.items() if name in statement.compile().params}
        async with engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                await connection.execution_options(postgresql_readonly=True)
            return (await connection.execute(statement, parameters)).fetchmany(k)

    def _read(self, rows: Sequence[Sequence[Any]], query: str, k: int) -> Answer:
        ids, scores = [], []
        for rank, row in enumerate(rows[:k], 1):
            if isinstance(row[0], bool) or not isinstance(row[0], str | int):
                raise DarklodeError(
                    f"{self.where}: row {rank} of query {query[:60]!r} has no id in its first column, but {row[0]!r}: "
                    f"correct {self._database.section}.statement"
                )
            score = float(row[1]) if len(row) > 1 and row[1] is not None else math.nan
            ids.append(str(row[0]))
            scores.append(score if math.isfinite(score) else 1 / rank)
        return ids, scores

    def _check(self, error: Exception, query: str, seconds: float) -> None:
        """Raise unless the failure may pass and there is time left.

        Raises:
            DarklodeError: it is permanent, or has lasted for `retry_timeout` seconds.
        """
        section, timeout = self._database.section, self._database.retry_timeout
        reason = self._reason(error)
        if not _is_transient(error):
            raise DarklodeError(
                f"{self.where}: query {query[:60]!r} failed, {reason}. Check {section}.statement and dsn"
            )
        if seconds > timeout:
            raise DarklodeError(
                f"{self.where}: {reason}; query {query[:60]!r} has failed for {timeout:g} s ({section}.retry_timeout). "
                "Answers so far are kept: run again to continue"
            )

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._database.timeout:g} s"
        cause = getattr(error, "orig", None) or error
        message = re.sub(r"^<class '[^']*'>: ", "", str(cause))  # SQLAlchemy's adapter of asyncpg puts it there
        return " ".join(message.split())[:300] or type(cause).__name__


def _is_transient(error: Exception) -> bool:
    if isinstance(error, OSError):  # connection refused, unknown host; TimeoutError is an OSError
        return True
    cause = getattr(error, "orig", None) or error
    state = str(getattr(cause, "sqlstate", None) or "")
    is_lost = bool(getattr(error, "connection_invalidated", False))
    return is_lost or state.startswith(_TRANSIENT_STATES) or "database is locked" in str(cause)
