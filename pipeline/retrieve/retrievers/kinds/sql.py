"""A database that a SQL statement searches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.retrieve.retrievers.kinds import LiveKind
from darklode.schemas.section import NoRow
from darklode.schemas.shared import RetryTimeout, Timeout

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.retrievers.external import LiveSearch

_POSTGRESQL_PORT = 5432


class SqlKind(LiveKind):
    """A database with full-text search, such as PostgreSQL or SQLite, asked with a SQL statement."""

    kind: Literal["sql"] = "sql"
    dsn: str = Field(
        min_length=1, description="SQLAlchemy URL without password, such as postgresql://user@host/database."
    )
    password_env: NoRow[str] = Field("", description="Environment variable that holds the password. Empty: none.")
    statement: str = Field(
        description="SQL with the parameters :query, :k and, if needed, :tenant. First column: id; second: score; "
        "best rows first."
    )
    max_concurrency: NoRow[int] = Field(4, gt=0, description="Maximum number of connections.")
    timeout: Timeout = 30
    retry_timeout: RetryTimeout = 600

    @model_validator(mode="after")
    def _parameters_are_complete(self) -> Self:
        present = set(re.findall(r"(?<![:\w]):(\w+)", self.statement))
        if lacking := [f":{name}" for name in ("query", "k") if name not in present]:
            raise ValueError(f"statement has no {' and '.join(lacking)}")
        return self

    @property
    def uses_tenant(self) -> bool:
        return ":tenant" in self.statement

    def address(self) -> str:
        from darklode.pipeline.retrieve.retrievers.sql_engine import database_url

        return database_url(self.dsn).render_as_string()

    def missing(self) -> list[str]:
        """A driver, password or server that is missing."""
        from darklode.pipeline.base.remote.endpoint import can_connect
        from darklode.pipeline.retrieve.retrievers.sql_engine import database_url, missing_driver, password_of

        try:
            url = database_url(self.dsn)
            password_of(self.password_env, f"the database {url.render_as_string()}")
        except DarklodeError as error:
            return [str(error)]
        if problem := missing_driver(url):
            return [problem]
        is_local = url.host is None or url.host.startswith("/")  # SQLite, or a Unix socket
        port = url.port or (_POSTGRESQL_PORT if url.drivername.startswith("postgresql") else None)
        if is_local or port is None or can_connect(url.host or "", port):
            return []
        return [f"no server at {url.host}:{port}; start it, or correct dsn"]

    def connect(self, name: str, tenant: str) -> LiveSearch:
        from darklode.pipeline.retrieve.retrievers.sql_engine import Database, SqlSearch

        database = Database(
            section=f"retrievers.{name}",
            dsn=self.dsn,
            password_env=self.password_env,
            statement=self.statement,
            max_concurrency=self.max_concurrency,
            timeout=self.timeout,
            retry_timeout=self.retry_timeout,
        )
        return SqlSearch(name, database, tenant, self.index_version)


KIND = SqlKind
