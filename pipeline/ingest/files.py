"""Which files a path stands for, and the format of each."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from pipeline.artifacts import Store, key_of
from pipeline.errors import InputError

FORMATS = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdx": "markdown",
    ".html": "html",
    ".htm": "html",
    ".txt": "text",
    ".text": "text",
    ".rst": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
PROSE = frozenset({"markdown", "html", "text"})
TABULAR = frozenset({"jsonl", "csv", "parquet"})
REMOTE = "s3://"


@dataclass(frozen=True)
class File:
    """A file to read: `name` is its path below the folder that was given, with `/`; `size` is in bytes."""

    path: Path
    name: str
    size: int
    modified_ns: int

    @property
    def ending(self) -> str:
        """The ending in lower case, without a `.gz` after it."""
        return Path(self.name.lower().removesuffix(".gz")).suffix

    @property
    def format(self) -> str | None:
        """The format by the file's ending; None where Darklode knows none."""
        return FORMATS.get(self.ending)


def listing(path: str, *, remote: bool = False) -> list[File]:
    """The file itself, or all files below a folder by relative path; `remote`: also below an `s3://` prefix.

    Hidden files and folders are skipped. A link to a file is followed only when it stays in the folder, a link to a
    folder never: what it leads to is either outside or listed anyway. An `s3://` prefix may be empty.

    Raises:
        InputError: there is no such file or folder, or it may not be looked into.
    """
    if remote and path.startswith(REMOTE):
        return sorted(_remote(Store(path)), key=lambda file: file.name)
    root = Path(path).expanduser()
    try:
        if root.is_file():
            return [_file(root, root.name)]
        if root.is_dir():
            return sorted(_below(root), key=lambda file: file.name)
    except OSError as error:
        raise InputError(f"{error.filename or path} cannot be read: {error.strerror}; check its permissions") from error
    raise InputError(f"{path} does not exist; name a file or a folder to read")


def source_fingerprint(path: str) -> str:
    """Hash the relative names, sizes and modification times of all files below a path (16 hex digits).

    Raises:
        InputError: there is no such path, or no file below it.
    """
    files = listing(path, remote=True)
    if not files:
        raise InputError(f"{path} holds no files; name a file or a folder to read")
    return key_of([[file.name, file.size, file.modified_ns] for file in files])


def _below(root: Path) -> Iterator[File]:
    inside = root.resolve()
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(folder, name)
            if name.startswith(".") or not path.is_file():
                continue
            if not path.is_symlink() or path.resolve().is_relative_to(inside):
                yield _file(path, path.relative_to(root).as_posix())


def _remote(store: Store) -> Iterator[File]:
    root = store.path("").rstrip("/")
    try:
        itself = store.filesystem.get_file_info(root)
        selector = pafs.FileSelector(root, allow_not_found=True, recursive=True)
        below = [itself] if itself.is_file else store.filesystem.get_file_info(selector)
    except OSError as error:
        raise InputError(
            f"{store.url} cannot be read ({error}); check the bucket, its permissions and AWS_*"
        ) from error
    for info in below:
        name = info.base_name if itself.is_file else info.path.removeprefix(f"{root}/")
        if info.is_file and not any(part.startswith(".") for part in name.split("/")):
            yield File(Path(info.path), name, info.size, info.mtime_ns or 0)


def _file(path: Path, name: str) -> File:
    status = path.stat()
    return File(path, name, status.st_size, status.st_mtime_ns)


def _raise(error: OSError) -> None:
    raise error
