"""A run's tables as pages ask for them: read once, with numbers for ids, so that a million pairs are soon filtered."""

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

LOOKED_UP = """
    documents chunks verdicts query_spellings query_terms click_evidence relevance_evidence associations mined_test
    query_clusters
"""
"""The tables that pages read where they lie, by the key of a row or two."""


@dataclass(frozen=True)
class Catalogue:
    """A run that is open; several threads may ask it.

    Attributes:
        name: the run's folder or prefix.
        mined: whether it is made from a search log.
    """

    name: str
    mined: bool
    _connection: duckdb.DuckDBPyConnection
    _query_lock: threading.Lock

    def table(self, sql: str, beside: Mapping[str, pa.Table] | None = None, /, **parameters: object) -> pa.Table:
        """The answer of an ordered query.

        Args:
            sql: the question.
            beside: rows that it names, besides the run's.
            parameters: the values that it names.

        Raises:
            ArtifactError: the files are gone, because the run was built anew.
        """
        try:
            with self._query_lock:
                for name, rows in (beside or {}).items():
                    self._connection.register(name, rows)
                answer: pa.Table = self._connection.sql(sql, params=parameters).to_arrow_table()
        except duckdb.IOException as error:
            raise ArtifactError("The run has been built anew since this page was started; start it again.") from error
        return answer

    def rows(self, sql: str, /, **parameters: object) -> list[Row]:
        """The answer of an ordered query, by names."""
        return self.table(sql, **parameters).to_pylist()  # type: ignore[no-any-return]

    def column(self, sql: str, /, **parameters: object) -> list[Any]:
        """The first column of an answer."""
        return [next(iter(row.values())) for row in self.rows(sql, **parameters)]


@contextmanager
def open_catalogue(run: Run) -> Iterator[Catalogue]:
    """Read what is filtered and searched into memory (what exceeds 2 GB of it spills to a temporary file).

    Nothing is written to the run. What people answered is read now, what they answer later is not seen.

    Args:
        run: one whose tables need not be complete.
    """
    reading = Run(run.store.url, untouched=True)
    is_mined = "impressions" in run.parts()
    steps = mined.STEPS if is_mined else build_tables.STEPS
    with all_tables(reading).open_local() as tables, tables.connect(" ".join([*steps, LOOKED_UP])) as connection:
        connection.register("answers", current_answers(AnswerJournal(run.store).read()))
        for step in steps:
            connection.execute(step)
        connection.unregister("answers")
        yield Catalogue(run.store.url, is_mined, connection, threading.Lock())
