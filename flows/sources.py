"""Sources of a run that are no local files: where their snapshots lie, fetching them, and their first rows."""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from threading import Lock
from typing import Concatenate, ParamSpec

from darklode.flows.prefect.progress import reporter
from darklode.pipeline.base.artifacts import Run, key_of
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.memory.parts import default_root
from darklode.pipeline.ingest.sources.fetch import Role, Source, fetch, has_files, is_fetched, name_source, preview
from darklode.schemas.paths import to_absolute
from darklode.schemas.settings import Settings

P = ParamSpec("P")

SOURCES_FOLDER = "sources"


def local_path(run: Run, role: Role, path: str, settings: Settings) -> str:
    """Where the readers find an input: the path itself, or the run's snapshot of it.

    Snapshots lie in the user's cache, not in the run: a run is shared, and rows of a log are not masked yet.
    """
    if not is_fetched(path, role):
        return path
    root = settings.cache.root
    cache = root if root and "://" not in root else default_root()
    return str(Path(cache).expanduser() / SOURCES_FOLDER / f"{role}-{key_of(run.store.url, role)}")


@contextmanager
def fetched(
    run: Run, settings: Settings, inputs: Mapping[Role, str], dates: Collection[date] | None = None
) -> Iterator[None]:
    """Fetch the inputs of a run that need it; errors inside the block name their addresses, not their snapshots.

    Args:
        run: a locked run.
        settings: its settings.
        inputs: path by role.
        dates: days of the log to fetch; None: all new ones.

    Raises:
        DarklodeError: an input cannot be read.
    """
    with ExitStack() as names:
        for role, path in inputs.items():
            if is_fetched(path, role):
                source, folder = source_of(role, path, settings), Path(local_path(run, role, path, settings))
                names.enter_context(name_source(folder, path))
                _fetch(source, folder, dates)
        yield


def _fetch(source: Source, folder: Path, dates: Collection[date] | None) -> None:
    began = time.monotonic()
    result = fetch(source, folder, dates if source.role == "logs" else None)
    rows = (
        "unchanged" if result.n_rows is None else f"{result.n_rows:,} {result.noun} in {time.monotonic() - began:.0f} s"
    )
    days = f", {len(result.days):,} days new or changed" if result.days else ""
    reporter().say(f"{source.role} from {source.address}: {rows}{days}")


def source_of(role: Role, path: str, settings: Settings) -> Source:
    """A source with the settings that decide which rows are fetched."""
    source = Source(role, to_absolute(path))
    if role == "docs":
        return replace(source, statement=settings.ingest.documents.statement, setting="ingest.documents.statement")
    if role == "queries":
        return replace(source, statement=settings.ingest.queries.statement, setting="ingest.queries.statement")
    if role == "qrels":
        return replace(source, setting="?table=NAME")
    logs = settings.logs
    return replace(
        source,
        statement=logs.statement,
        setting="logs.statement",
        time_column=logs.columns.timestamp,
        time_zone=logs.time_zone,
        late_days=logs.max_late_days,
    )


class InputPreview:
    """An input for the checks before a run: the path itself, or the first rows of a source in a temporary folder.

    Args:
        role: what the input holds.
        path: its path or address.
        settings: settings of the run.
    """

    def __init__(self, role: Role, path: str, settings: Settings) -> None:
        self.path, self.is_fetched = path, is_fetched(path, role)
        self._role, self._settings, self._lock = role, settings, Lock()
        self._folder: Path | None = None
        self._failure: DarklodeError | None = None

    def check(self, check: Callable[Concatenate[str, P], list[str]], *args: P.args, **kwargs: P.kwargs) -> list[str]:
        """Run a check on the input; its findings name the address.

        Raises:
            DarklodeError: the check failed, or the source cannot be read.
        """
        with self.opened() as path:
            if self.is_fetched and has_files(self.path):  # they are only listed
                return []
            return [note.replace(path, self.path) for note in check(path, *args, **kwargs)]

    @contextmanager
    def opened(self) -> Iterator[str]:
        """The path to read; errors inside the block name the address."""
        if not self.is_fetched:
            yield self.path
            return
        with self._lock:
            folder = self._folder = self._folder or self._fetch()
        with name_source(folder, self.path):
            yield str(folder)

    def _fetch(self) -> Path:
        """The first rows, fetched once: several checks read them, or fail with the same error."""
        if self._failure:
            raise self._failure
        folder = Path(tempfile.mkdtemp(prefix="darklode-source-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)  # with the checks that share it
        try:
            preview(source_of(self._role, self.path, self._settings), folder)
        except DarklodeError as failure:
            self._failure = failure
            raise
        return folder
