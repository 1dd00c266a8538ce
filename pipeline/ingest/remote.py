"""Copies of the objects below an `s3://` prefix, while they are read."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pipeline.artifacts import Store
from pipeline.errors import InputError
from pipeline.ingest.files import REMOTE, File


@contextmanager
def at_hand(path: str, files: Sequence[File]) -> Iterator[list[File]]:
    """The files where they can be opened: those below an `s3://` prefix as copies that are gone afterwards.

    Raises:
        InputError: one cannot be copied.
    """
    if not path.startswith(REMOTE):
        yield list(files)
        return
    store = Store(path)
    with tempfile.TemporaryDirectory(prefix="darklode-log-") as folder:
        try:
            yield [_copied(store, file, Path(folder)) for file in files]
        except InputError as error:
            raise InputError(str(error).replace(folder, store.url)) from error


def _copied(store: Store, file: File, folder: Path) -> File:
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with store.filesystem.open_input_stream(str(file.path), compression=None) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    except OSError as error:
        raise InputError(f"{target} cannot be read ({error}); check the bucket and AWS_*") from error
    return replace(file, path=target)
