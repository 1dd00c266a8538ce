"""Empty DuckDB databases for queries: one of their own, or a catalogue of a database that a process shares."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count

import duckdb
import pyarrow as pa

from darklode.pipeline.base.errors import ArtifactError, NotWritable

MEMORY_LIMIT = "2GB"
"""Memory of a DuckDB database; larger intermediate results are spilled to disk."""


class SharedDatabase:
    """A database whose connections each see an empty catalogue of their own; memory limit and threads are shared.

    Opening a database takes 20 ms of processor time, attaching a catalogue less than one.

    Args:
        spill: folder for what does not fit into memory.
    """

    def __init__(self, spill: str) -> None:
        self._root = _open(spill)
        self._lock = threading.Lock()
        self._numbers = count()
        self._process = os.getpid()
        self._is_broken = False

    @property
    def is_usable(self) -> bool:
        """Whether this process may use it: not after a fatal error, nor in a fork, which lacks its threads."""
        return self._process == os.getpid() and not self._is_broken

    @contextmanager
    def catalogue(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to a new catalogue, which is dropped with its tables and views after the block."""
        name = f"scratch_{next(self._numbers)}"
        with self._lock:
            connection = self._root.cursor()
        try:
            connection.execute(f"ATTACH ':memory:' AS {name}")
            connection.execute(f"USE {name}")
            yield connection
        except duckdb.FatalException:
            self._is_broken = True
            raise
        finally:
            connection.close()
            with self._lock, suppress(duckdb.FatalException):
                self._root.execute(f"DETACH DATABASE IF EXISTS {name}")

    def close(self) -> None:
        """Close the database."""
        self._root.close()


_SHARED: list[SharedDatabase] = []
"""The database of the running block; not a context variable, because Prefect pickles those for workers."""


@contextmanager
def shared_database() -> Iterator[None]:
    """Within the block, `scratch` opens catalogues of one database instead of databases; blocks may be nested."""
    if _SHARED:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="darklode-duckdb-") as spill:
        database = SharedDatabase(spill)
        _SHARED.append(database)
        try:
            yield
        finally:
            _SHARED.remove(database)
            database.close()


@contextmanager
def scratch(*, own: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty in-memory database that spills to disk above MEMORY_LIMIT.

    Args:
        own: a database of its own even within `shared_database`, so that its settings can be changed.
    """
    shared = next(iter(_SHARED), None)
    if shared and shared.is_usable and not own:
        with shared.catalogue() as connection, explain_failures():
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="darklode-duckdb-") as spill:
        connection = _open(spill)
        try:
            with explain_failures():
                yield connection
        finally:
            connection.close()


def _open(spill: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        config={"memory_limit": MEMORY_LIMIT, "temp_directory": spill, "preserve_insertion_order": False}
    )
    # Not unconditionally: in Jupyter without ipywidgets the bar is off, and setting it at all is an error.
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("SET enable_progress_bar = false")
    return connection


_DAMAGE_MESSAGES = ("CRC checksum verification failed", "Couldn't deserialize thrift")
"""Arrow's messages for damaged pages."""


@contextmanager
def explain_failures() -> Iterator[None]:
    """Explain damaged pages, which are only detected by reading on S3, and a full disk.

    Raises:
        ArtifactError: a page is damaged.
        NotWritable: the disk is full.
    """
    try:
        yield
    except (duckdb.Error, OSError) as error:
        if any(sign in str(error) for sign in _DAMAGE_MESSAGES):
            raise ArtifactError("a file of the run is damaged; find it with `darklode verify RUN`") from error
        if isinstance(error, OSError) or os.strerror(errno.ENOSPC) not in str(error):
            raise
        message = f"no space left for intermediate results in {tempfile.gettempdir()}"
        raise NotWritable(f"{message}; free some, or set TMPDIR to another folder") from error


def pieces(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Mapping[str, object], rows: int
) -> Iterator[pa.Table]:
    """Run an ordered query; yields its rows in pieces of `rows` rows.

    DuckDB's batches depend on its number of threads; these pieces are the same on every machine.
    """
    reader = connection.sql(query, params=dict(parameters)).to_arrow_reader(rows)
    buffered: pa.Table = reader.schema.empty_table()
    for batch in reader:
        buffered = pa.concat_tables([buffered, pa.Table.from_batches([batch])])
        while buffered.num_rows >= rows:
            yield buffered.slice(0, rows)
            buffered = buffered.slice(rows)
    if buffered.num_rows:
        yield buffered
