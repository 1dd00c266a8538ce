"""Files below one root: a local folder or an `s3://` prefix, with writes that happen whole or not at all."""

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

from darklode.pipeline.base.artifacts.listing_cache import MANIFESTS, TOGETHER, ListingCache, Stamps
from darklode.pipeline.base.artifacts.temporary_files import UNLOCKED, is_left_over, is_temporary, temporary_path
from darklode.pipeline.base.errors import ArtifactError, NotWritable

LOCK = ".lock"

_REMEDIES = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room in your quota",
    errno.EFBIG: "the system bounds the size of files (ulimit -f, or the file system): raise it",
    errno.EROFS: "choose a place that can be written to",
    errno.EACCES: "choose a place that you may write to, or have its permissions changed",
    errno.EPERM: "choose a place that you may write to, or have its permissions changed",
    errno.ENOTDIR: "a file lies where a folder belongs: choose another place",
    errno.EEXIST: "a file lies where a folder belongs: choose another place",
    errno.EISDIR: "a folder lies where a file belongs: choose another place",
    errno.ENAMETOOLONG: "choose a place with a shorter path",
}
"""What to do where a file cannot be written, and no new try will change that."""


class Store:
    """A root URL and the files below it, named by relative paths with `/`.

    Raises:
        ArtifactError: the URL has another scheme, names no bucket, or carries a user name or password (keys come from
            the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; AWS_ENDPOINT_URL names another server than AWS).
    """

    def __init__(self, url: str) -> None:
        self._listing_cache: ListingCache | None = None
        self._lease = UNLOCKED
        self.local: Path | None = None
        if url.startswith("s3://"):
            self._fs, self._root = _s3(url, os.environ)
            self.url = f"s3://{self._root}"
        elif "://" in url:
            scheme = urlsplit(url).scheme
            raise ArtifactError(f"{scheme}:// is not a place for a run; use a folder or s3://bucket/prefix")
        else:
            self.local = Path(url).expanduser().resolve()
            self.url = str(self.local)
            self._fs, self._root = pafs.LocalFileSystem(), str(self.local)

    def path(self, name: str) -> str:
        """The file's path as the filesystem (and, locally, DuckDB) knows it."""
        return f"{self._root}/{name}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While one process works on a run: what was listed and read is not asked for again, see `kept.py`.

        It follows each write and deletion of this store; `read_now` and `mark_shared` are for what other processes
        may have changed.
        """
        before, self._listing_cache = self._listing_cache, ListingCache()
        try:
            yield
        finally:
            with suppress(OSError):
                if self._listing_cache.has_listing:
                    self.write(TOGETHER, self._listing_cache.together(self._stamps("manifests")))
            self._listing_cache = before

    def mark_shared(self, folder: str) -> None:
        """List a folder anew whenever it is asked for: from here on others write to it, too."""
        if self._listing_cache:
            self._listing_cache.mark_shared(folder)

    def __getstate__(self) -> dict[str, Any]:
        # on another machine nobody follows what is written here, and the lock's holder may end before it does
        return self.__dict__ | {"_kept": None, "_lease": UNLOCKED}

    @property
    def filesystem(self) -> pafs.FileSystem:
        return self._fs

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Write a file whole: whoever looks sees all of it or nothing, also after a kill or a power cut.

        Raises:
            NotWritable: there is no room or no leave, or a file lies in the way; nothing of it is left.
        """
        if self.local is None:
            with self._tracked_write(name):
                with self._fs.open_output_stream(self.path(name)) as stream:
                    stream.write(data)
                if self._listing_cache:
                    self._listing_cache.record_write(name, data)
            return
        target = self.local / name
        with writing(target):
            _make(target.parent)
            _write(target, data, self._lease)

    def prepare(self) -> None:
        """Make the root, where it is a folder.

        Raises:
            NotWritable: it cannot be made or written to.
        """
        if self.local is not None:
            with writing(self.local):
                _make(self.local)

    @contextmanager
    def hold_lease(self, lease: str) -> Iterator[None]:
        """While the run's lock is held: temporary files name the lease, and what killed processes left is deleted.

        Files are looked for in the root and in the folders directly below it.

        Raises:
            NotWritable: what was left cannot be deleted.
        """
        with writing(Path(self._root)):
            for folder in ("", *self.folders("")):
                for info in self._list(folder):
                    if info.is_file and is_left_over(info.base_name, (info.mtime_ns or 0) / 1e9, lease):
                        self.delete(info.path.removeprefix(f"{self._root}/"))
        self._lease = lease
        try:
            yield
        finally:
            self._lease = UNLOCKED

    @contextmanager
    def _tracked_write(self, name: str) -> Iterator[None]:
        """Forget what is known of a file's folder where nobody can say what became of it."""
        try:
            yield
        except BaseException:
            if self._listing_cache:
                self._listing_cache.forget(name)
            raise

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or None where there is no such file; see `alone`."""
        cache = self._listing_cache
        if cache is None or not cache.has_bytes(name):
            return self.read_now(name)
        is_listed = name in cache.files or not name.startswith(MANIFESTS) or name in self._known_stamps("manifests")
        if name not in cache.files:  # the listing of manifests may have brought it along
            cache.files[name] = self.read_now(name) if is_listed else None
        return cache.files[name]

    def read_now(self, name: str) -> bytes | None:
        """The same, whatever was read before."""
        try:
            with self._fs.open_input_stream(self.path(name), compression=None) as stream:
                return bytes(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_object(self, name: str) -> dict[str, Any]:
        """The JSON object in a file; an empty one where there is none that can be read."""
        try:
            value = json.loads(self.read(name) or b"{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def stamp(self, name: str) -> str | None:
        """What a local disk says of a file, which is another once it was written to; None where there is no file."""
        try:
            file_stat = os.stat(self.path(name))  # noqa: PTH116 (a Path costs more than the look)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return f"{file_stat.st_ino}-{file_stat.st_size}-{file_stat.st_mtime_ns}-{file_stat.st_ctime_ns}"

    def version(self, name: str) -> dict[str, str] | None:
        """What changes whenever the file does: of a local disk its stamp, of S3 its size, ETag and version.

        None where there is no such file, or the storage keeps nothing but size and time.
        """
        if self.local:
            stamp = self.stamp(name)
            return None if stamp is None else {"stamp": stamp}
        try:
            with self._fs.open_input_file(self.path(name)) as file:
                about = {key: value.decode() for key, value in (file.metadata() or {}).items()}
        except FileNotFoundError:
            return None
        if not about.get("ETag"):
            return None
        return {key: about[key] for key in ("Content-Length", "ETag", "VersionId") if key in about}

    def size(self, name: str) -> int | None:
        """The file's size in bytes, or None where there is no such file."""
        info = self._fs.get_file_info(self.path(name))
        return int(info.size) if info.is_file else None

    def sizes(self, folder: str, *, recursive: bool = False) -> dict[str, int]:
        """Files in a folder (and below it) and their sizes in bytes; empty where there is no such folder."""
        if self._listing_cache and self._listing_cache.is_listed(folder):
            below = self._files_below(folder).items()
            sizes = {name: file_name for name, file_name in below if recursive or "/" not in name[len(folder) + 1 :]}
        else:
            sizes = self._stamps(folder, recursive=recursive)
        return {name: size for name, (size, _) in sizes.items()}

    def _stamps(self, folder: str, *, recursive: bool = True) -> Stamps:
        """Sizes and times, listed now."""
        infos = (info for info in self._list(folder, recursive=recursive) if info.is_file)
        return {info.path.removeprefix(f"{self._root}/"): (info.size, info.mtime_ns or 0) for info in infos}

    def _known_stamps(self, folder: str) -> Stamps:
        """The files of one of the kept folders, listed once; with the manifests comes what `manifests.json` says."""
        assert self._listing_cache is not None
        top = folder.partition("/")[0]
        if top not in self._listing_cache.stamps:
            self._listing_cache.stamps[top] = self._stamps(top)
            if top == "manifests":
                self._listing_cache.load_manifests(self.read_now(TOGETHER), self._listing_cache.stamps[top])
        return self._listing_cache.stamps[top]

    def _files_below(self, folder: str) -> Stamps:
        """Of the files that are known those in a folder, at any depth."""
        return {name: stamp for name, stamp in self._known_stamps(folder).items() if name.startswith(f"{folder}/")}

    def folders(self, folder: str) -> list[str]:
        """Names of the folders directly in a folder, sorted."""
        if self._listing_cache and self._listing_cache.is_listed(folder):
            below = (name[len(folder) + 1 :] for name in self._files_below(folder))
            return sorted({name.partition("/")[0] for name in below if "/" in name})
        return sorted(info.base_name for info in self._list(folder) if info.type == pafs.FileType.Directory)

    def root_names(self) -> list[str]:
        """Names of what lies at the root, sorted, without the traces of a process that was killed while it began."""
        names = (info.base_name for info in self._list(""))
        return sorted(name for name in names if name != LOCK and not is_temporary(name))

    def _list(self, folder: str, *, recursive: bool = False) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(self.path(folder), allow_not_found=True, recursive=recursive)
        try:
            return list(self._fs.get_file_info(selector))
        except OSError:  # a folder made while it was looked for is neither found nor missing
            return list(self._fs.get_file_info(selector))

    def delete(self, name: str) -> None:
        """Delete a file; one that is already gone is no error."""
        with self._tracked_write(name), suppress(FileNotFoundError):
            self._fs.delete_file(self.path(name))
        if self._listing_cache:
            self._listing_cache.mark_deleted(name)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it; one that is already gone is no error."""
        if self._listing_cache:
            self._listing_cache.forget(folder)
        with suppress(FileNotFoundError):
            self._fs.delete_dir(self.path(folder))


class UntouchedStore(Store):
    """A store that is read and nothing else."""

    def write(self, name: str, data: bytes | memoryview) -> None:  # noqa: ARG002 (as it is called)
        """Refuse.

        Raises:
            NotWritable: always.
        """
        raise NotWritable(f"{self.path(name)} is not to be written: the run is only read")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say what to do where the operating system refuses for good.

    Raises:
        NotWritable: it does.
    """
    try:
        yield
    except OSError as error:
        number = error.errno or (errno.ENOSPC if " requested and " in str(error) else 0)  # all that NumPy says
        remedy = _REMEDIES.get(number)
        if remedy is None:
            raise
        message = f"{path} cannot be written ({os.strerror(number)}); {remedy}, and run the same command again"
        raise NotWritable(message) from error


def _write(target: Path, data: bytes | memoryview, lease: str) -> None:
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
    _flush(target.parent)


def _make(folder: Path) -> None:
    """Make a folder and those above it, and have their names on disk."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _flush(folder.parent)


def _flush(folder: Path) -> None:
    """Have a folder's names on disk, too: a power cut could still undo a rename."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_address(url: str) -> None:
    """Make sure that an address may be written down; a path may.

    Raises:
        ArtifactError: it carries a user name, a password or options; the message does not.
    """
    parts = urlsplit(url)
    if "://" in url and (set("@:") & set(parts.netloc) or parts.query or parts.fragment):
        raise ArtifactError(
            f"an {parts.scheme}:// address must not carry keys or options; set AWS_* in the environment"
        )


_AWS = re.compile(r"AWS Error (\w+)(?: \([^)]*\))? during (\w+) operation: (.*)", re.DOTALL)


def s3_failure(error: Exception) -> str | None:
    """A sentence for an error of pyarrow's S3 filesystem, which has no errno as other OSErrors do; None for others."""
    match = _AWS.search(str(error)) if isinstance(error, OSError) else None
    if match is None:
        return None
    kind, operation, message = match[1], match[2], " ".join(match[3].split())
    if kind == "NETWORK_CONNECTION" or "curlCode" in message:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "//AWS"
        host = urlsplit(endpoint).netloc.rpartition("@")[2] or endpoint  # without a user's name and password
        remedy = "check the network, AWS_ENDPOINT_URL and AWS_REGION, and run the same command again"
        return f"S3 at {host} cannot be reached ({message}); {remedy}"
    return f"S3 refused {operation} ({kind}: {message}); check the bucket, AWS_REGION and the keys in AWS_*"


def _s3(url: str, environment: Mapping[str, str]) -> tuple[pafs.FileSystem, str]:
    check_address(url)
    parts = urlsplit(url)
    if not parts.netloc:
        raise ArtifactError("an s3:// address names a bucket: s3://bucket/prefix")
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    # a small file is one request, and there is nothing of it before: a delayed open puts it whole
    filesystem = pafs.S3FileSystem(endpoint_override=endpoint, region=region, allow_delayed_open=True)
    return filesystem, f"{parts.netloc}{parts.path}".rstrip("/")
