"""In-memory tables of a run for browsing, with integer ids so that millions of pairs can be filtered quickly."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Row
from darklode.pipeline.browse import build_tables
from darklode.pipeline.browse import mined_tables as mined
from darklode.pipeline.validate.review.journal import AnswerJournal, current_answers

LOOKUP_TABLES = """
    documents chunks verdicts query_spellings query_terms click_evidence relevance_evidence associations mined_test
    query_clusters
"""
"""Tables that stay on disk; pages look up single rows by key."""


@dataclass(frozen=True)
class Catalogue:
    """An open run; thread-safe.

    Attributes:
        name: the run's folder or prefix.
        mined: whether it was mined from a search log.
    """

    name: str
    mined: bool
    _connection: duckdb.DuckDBPyConnection
    _query_lock: threading.Lock

    def table(self, sql: str, views: Mapping[str, pa.Table] | None = None, /, **parameters: object) -> pa.Table:
        """Run SQL.

        Args:
            sql: a query with an ORDER BY.
            views: additional tables that it reads, by name.
            parameters: values of its named parameters.

        Raises:
            ArtifactError: files are missing because the run was rebuilt.
        """
        try:
            with self._query_lock:
                for name, rows in (views or {}).items():
                    self._connection.register(name, rows)
                answer: pa.Table = self._connection.sql(sql, params=parameters).to_arrow_table()
        except duckdb.IOException as error:
            raise ArtifactError("The run was rebuilt after this server started; restart the command.") from error
        return answer

    def rows(self, sql: str, /, **parameters: object) -> list[Row]:
        """Run SQL and return its rows."""
        return self.table(sql, **parameters).to_pylist()  # type: ignore[no-any-return]

    def column(self, sql: str, /, **parameters: object) -> list[Any]:
        """Run SQL and return its first column."""
        return [next(iter(row.values())) for row in self.rows(sql, **parameters)]


@contextmanager
def open_catalogue(run: Run) -> Iterator[Catalogue]:
    """Load the searchable tables of a run, which may be incomplete; above 2 GB they spill to a temporary file.

    The run is not modified. Answers that reviewers give after opening are not seen.
    """
    reading = Run(run.store.url, untouched=True)
    is_mined = "impressions" in run.parts()
    steps = mined.STEPS if is_mined else build_tables.STEPS
    with all_tables(reading).open_local() as tables, tables.connect(" ".join([*steps, LOOKUP_TABLES])) as connection:
        connection.register("answers", current_answers(AnswerJournal(run.store).read()))
        for step in steps:
            connection.execute(step)
        connection.unregister("answers")
        yield Catalogue(run.store.url, is_mined, connection, threading.Lock())
