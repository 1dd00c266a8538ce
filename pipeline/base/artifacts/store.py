"""Files below a root URL: a local folder or an `s3://` prefix. Writes are atomic."""

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from darklode.pipeline.base.artifacts.listing_cache import MANIFESTS_PREFIX, MERGED_MANIFESTS, ListingCache, Stamps
from darklode.pipeline.base.artifacts.temporary_files import UNLOCKED_LEASE, is_left_over, is_temporary, temporary_path
from darklode.pipeline.base.errors import ArtifactError, NotWritable

LOCK_FILE = ".lock"

_REMEDIES = {
    errno.ENOSPC: "free space on that disk",
    errno.EDQUOT: "free space in your quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f, or the file system's)",
    errno.EROFS: "choose a writable folder",
    errno.EACCES: "choose another folder, or change its permissions",
    errno.EPERM: "choose another folder, or change its permissions",
    errno.ENOTDIR: "a file is in the place of a folder: choose another folder",
    errno.EEXIST: "a file is in the place of a folder: choose another folder",
    errno.EISDIR: "a folder is in the place of a file: choose another folder",
    errno.ENAMETOOLONG: "choose a folder with a shorter path",
}
"""Advice for permanent write errors; other errors are raised as they are."""


class Store:
    """A root URL and the files below it, by relative paths with `/`.

    Raises:
        ArtifactError: the URL has another scheme, no bucket, or contains a user name or password. Credentials come from
            the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; AWS_ENDPOINT_URL for servers other than AWS.
    """

    def __init__(self, url: str) -> None:
        self._listing_cache: ListingCache | None = None
        self._lease = UNLOCKED_LEASE
        self.local: Path | None = None
        if url.startswith("s3://"):
            self._fs, self._root = _s3(url, os.environ)
            self.url = f"s3://{self._root}"
        elif "://" in url:
            scheme = urlsplit(url).scheme
            raise ArtifactError(f"{scheme}:// is not supported for runs; use a folder or s3://bucket/prefix")
        else:
            self.local = Path(url).expanduser().resolve()
            self.url = str(self.local)
            self._fs, self._root = pafs.LocalFileSystem(), str(self.local)

    def path(self, name: str) -> str:
        """The file's path for the filesystem (and, locally, for DuckDB)."""
        return f"{self._root}/{name}"

    @contextmanager
    def cache_listings(self) -> Iterator[None]:
        """Cache listings and small files while this is the only process that works on a run; see `listing_cache`.

        The cache follows this store's writes and deletions; `read_now` and `mark_shared` bypass it for files that other
        processes may have changed.
        """
        outer_cache = self._listing_cache
        self._listing_cache = ListingCache()
        try:
            yield
        finally:
            with suppress(OSError):
                if self._listing_cache.is_changed:
                    self.write(MERGED_MANIFESTS, self._listing_cache.merge(self._list_stamps("manifests")))
            self._listing_cache = outer_cache

    def mark_shared(self, folder: str) -> None:
        """Stop caching a folder, because other processes write to it from now on."""
        if self._listing_cache:
            self._listing_cache.mark_shared(folder)

    def __getstate__(self) -> dict[str, Any]:
        # Another process sees neither the cache's updates nor the end of the lock.
        return self.__dict__ | {"_listing_cache": None, "_lease": UNLOCKED_LEASE}

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The pyarrow filesystem; use with `path`."""
        return self._fs

    def write_changed(self, name: str, data: bytes) -> None:
        """Write a file unless it has this content: a job without news writes nothing.

        Raises:
            NotWritable: see `write`.
        """
        if self.read(name) != data:
            self.write(name, data)

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Write a file atomically: readers see all of it or nothing, even after a kill or a power failure.

        Raises:
            NotWritable: no space, no permission, or a file is in the way; nothing was written.
        """
        if self.local is None:
            with self._tracked_write(name):
                with self._fs.open_output_stream(self.path(name)) as stream:
                    stream.write(data)
                if self._listing_cache:
                    self._listing_cache.record_write(name, data)
            return
        target = self.local / name
        with explain_write_errors(target):
            _create_folder(target.parent)
            _write_atomically(target, data, self._lease)

    def prepare(self) -> None:
        """Create the root if it is a local folder.

        Raises:
            NotWritable: it cannot be created or written to.
        """
        if self.local is not None:
            with explain_write_errors(self.local):
                _create_folder(self.local)

    @contextmanager
    def hold_lease(self, lease: str) -> Iterator[None]:
        """While the run's lock is held: temporary files contain the lease, and those of killed processes are deleted.

        Only the root and the folders directly below it are searched for them.

        Raises:
            NotWritable: a temporary file cannot be deleted.
        """
        with explain_write_errors(Path(self._root)):
            for folder in ("", *self.folders("")):
                for info in self._list(folder):
                    if info.is_file and is_left_over(info.base_name, (info.mtime_ns or 0) / 1e9, lease):
                        self.delete(info.path.removeprefix(f"{self._root}/"))
        self._lease = lease
        try:
            yield
        finally:
            self._lease = UNLOCKED_LEASE

    @contextmanager
    def _tracked_write(self, name: str) -> Iterator[None]:
        """Drop the cache of a file's folder if a write or deletion fails, because its outcome is unknown."""
        try:
            yield
        except BaseException:
            if self._listing_cache:
                self._listing_cache.forget(name)
            raise

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or None if it does not exist; may come from the cache."""
        cache = self._listing_cache
        if cache is None or not cache.has_bytes(name):
            return self.read_now(name)
        is_listed = (
            name in cache.files or not name.startswith(MANIFESTS_PREFIX) or name in self._cached_stamps("manifests")
        )
        if name not in cache.files:  # listing manifests may have loaded it
            cache.files[name] = self.read_now(name) if is_listed else None
        return cache.files[name]

    def read_now(self, name: str) -> bytes | None:
        """The file's bytes, bypassing the cache."""
        try:
            with self._fs.open_input_stream(self.path(name), compression=None) as stream:
                return bytes(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_object(self, name: str) -> dict[str, Any]:
        """The JSON object in a file; empty if the file is missing or invalid."""
        try:
            value = json.loads(self.read(name) or b"{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def stamp(self, name: str) -> str | None:
        """Inode, size and times of a local file, which change with every write; None if it does not exist."""
        try:
            file_stat = os.stat(self.path(name))  # noqa: PTH116 (Path is slower than the call)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return f"{file_stat.st_ino}-{file_stat.st_size}-{file_stat.st_mtime_ns}-{file_stat.st_ctime_ns}"

    def version(self, name: str) -> dict[str, str] | None:
        """Identifiers that change whenever the file does: locally its stamp, on S3 its size, ETag and version.

        None if the file does not exist, or if the storage provides no ETag.
        """
        if self.local:
            stamp = self.stamp(name)
            return None if stamp is None else {"stamp": stamp}
        try:
            with self._fs.open_input_file(self.path(name)) as file:
                metadata = {key: value.decode() for key, value in (file.metadata() or {}).items()}
        except FileNotFoundError:
            return None
        if not metadata.get("ETag"):
            return None
        return {key: metadata[key] for key in ("Content-Length", "ETag", "VersionId") if key in metadata}

    def size(self, name: str) -> int | None:
        """The file's size in bytes, or None if it does not exist."""
        info = self._fs.get_file_info(self.path(name))
        return int(info.size) if info.is_file else None

    def sizes(self, folder: str, *, recursive: bool = False) -> dict[str, int]:
        """Sizes of the files in a folder (and below it, if recursive); empty if it does not exist."""
        if self._listing_cache and self._listing_cache.is_listed(folder):
            cached = self._files_below(folder).items()
            stamps = {name: stamp for name, stamp in cached if recursive or "/" not in name[len(folder) + 1 :]}
        else:
            stamps = self._list_stamps(folder, recursive=recursive)
        return {name: size for name, (size, _) in stamps.items()}

    def _list_stamps(self, folder: str, *, recursive: bool = True) -> Stamps:
        """Sizes and times of files, bypassing the cache."""
        infos = (info for info in self._list(folder, recursive=recursive) if info.is_file)
        return {info.path.removeprefix(f"{self._root}/"): (info.size, info.mtime_ns or 0) for info in infos}

    def _cached_stamps(self, folder: str) -> Stamps:
        """Files of a cached folder, listed once; listing `manifests` also loads `manifests.json`."""
        assert self._listing_cache is not None
        top = folder.partition("/")[0]
        if top not in self._listing_cache.stamps:
            self._listing_cache.stamps[top] = self._list_stamps(top)
            if top == "manifests":
                self._listing_cache.load_manifests(self.read_now(MERGED_MANIFESTS), self._listing_cache.stamps[top])
        return self._listing_cache.stamps[top]

    def _files_below(self, folder: str) -> Stamps:
        """Cached files in a folder, at any depth."""
        return {name: stamp for name, stamp in self._cached_stamps(folder).items() if name.startswith(f"{folder}/")}

    def folders(self, folder: str) -> list[str]:
        """Names of direct subfolders, sorted."""
        if self._listing_cache and self._listing_cache.is_listed(folder):
            relative_names = (name[len(folder) + 1 :] for name in self._files_below(folder))
            return sorted({name.partition("/")[0] for name in relative_names if "/" in name})
        return sorted(info.base_name for info in self._list(folder) if info.type == pafs.FileType.Directory)

    def root_names(self) -> list[str]:
        """Names of files and folders at the root, sorted, without lock and temporary files."""
        names = (info.base_name for info in self._list(""))
        return sorted(name for name in names if name != LOCK_FILE and not is_temporary(name))

    def _list(self, folder: str, *, recursive: bool = False) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(self.path(folder), allow_not_found=True, recursive=recursive)
        try:
            return list(self._fs.get_file_info(selector))
        except OSError:  # a folder created during the call gives an error: try again
            return list(self._fs.get_file_info(selector))

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        with self._tracked_write(name), suppress(FileNotFoundError):
            self._fs.delete_file(self.path(name))
        if self._listing_cache:
            self._listing_cache.mark_deleted(name)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with its content if it exists."""
        if self._listing_cache:
            self._listing_cache.forget(folder)
        with suppress(FileNotFoundError):
            self._fs.delete_dir(self.path(folder))


class ReadOnlyStore(Store):
    """A store that rejects writes."""

    def write(self, name: str, data: bytes | memoryview) -> None:  # noqa: ARG002 (signature of the base class)
        """Raise an error.

        Raises:
            NotWritable: always.
        """
        raise NotWritable(f"{self.path(name)} cannot be written: the run is opened read-only")


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn permanent write errors into errors with advice.

    Raises:
        NotWritable: a permanent write error.
    """
    try:
        yield
    except OSError as error:
        number = error.errno or (errno.ENOSPC if " requested and " in str(error) else 0)  # NumPy's error has no errno
        remedy = _REMEDIES.get(number)
        if remedy is None:
            raise
        message = f"{path} cannot be written ({os.strerror(number)}); {remedy}, and run the same command again"
        raise NotWritable(message) from error


def _write_atomically(target: Path, data: bytes | memoryview, lease: str) -> None:
    """Write a temporary file, flush it to disk and rename it to the target."""
    temporary = temporary_path(target, lease)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _create_folder(folder: Path) -> None:
    """Create a folder and its parents durably."""
    if not folder.is_dir():
        _create_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk: otherwise a power failure could undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_address(url: str) -> None:
    """Check that a URL contains no secrets, because it is recorded.

    Raises:
        ArtifactError: it contains a user name, a password or options; the message does not.
    """
    parts = urlsplit(url)
    if "://" in url and (set("@:") & set(parts.netloc) or parts.query or parts.fragment):
        raise ArtifactError(f"{parts.scheme}:// URLs must not contain keys or options; set AWS_* in the environment")


_AWS_ERROR = re.compile(r"AWS Error (\w+)(?: \([^)]*\))? during (\w+) operation: (.*)", re.DOTALL)


def s3_failure(error: Exception) -> str | None:
    """The message for an error of pyarrow's S3 filesystem, which has no errno; None for other errors."""
    match = _AWS_ERROR.search(str(error)) if isinstance(error, OSError) else None
    if match is None:
        return None
    kind, operation, message = match[1], match[2], " ".join(match[3].split())
    if kind == "NETWORK_CONNECTION" or "curlCode" in message:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "//AWS"
        host = urlsplit(endpoint).netloc.rpartition("@")[2] or endpoint  # without user name and password
        remedy = "check the network, AWS_ENDPOINT_URL and AWS_REGION, and run the same command again"
        return f"S3 at {host} cannot be reached ({message}); {remedy}"
    return f"S3 refused {operation} ({kind}: {message}); check the bucket, AWS_REGION and the keys in AWS_*"


def _s3(url: str, environment: Mapping[str, str]) -> tuple[pafs.FileSystem, str]:
    """Open an S3 filesystem; returns it and the root path, `bucket/prefix`.

    Raises:
        ArtifactError: the URL has no bucket or contains secrets.
    """
    check_address(url)
    parts = urlsplit(url)
    if not parts.netloc:
        raise ArtifactError("the s3:// URL has no bucket; use s3://bucket/prefix")
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    # Delayed open: a small file is a single PUT request, which is atomic.
    filesystem = pafs.S3FileSystem(endpoint_override=endpoint, region=region, allow_delayed_open=True)
    return filesystem, f"{parts.netloc}{parts.path}".rstrip("/")
