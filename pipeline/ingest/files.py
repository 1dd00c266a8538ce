"""Which files a path stands for, the format of each, which hold documents or queries, and how they are to be read."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pyarrow.fs as pafs

from darklode.pipeline.base.artifacts import Store, key_of
from darklode.pipeline.base.errors import InputError

FORMATS = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdx": "markdown",
    ".html": "html",
    ".htm": "html",
    ".txt": "text",
    ".text": "text",
    ".rst": "text",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
PROSE = frozenset({"markdown", "html", "text"})
TABULAR = frozenset({"jsonl", "csv", "parquet"})
REMOTE = "s3://"

_SHEET = "save it as CSV (UTF-8) there, or run `soffice --headless --convert-to csv {name}`"
_PAGES = "make text of it: `pandoc -o {name}.md {name}`"
CONVERSIONS = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods", ".numbers"), _SHEET),
    **dict.fromkeys((".docx", ".odt", ".rtf", ".epub"), _PAGES),
    ".doc": "make text of it: `soffice --headless --convert-to txt {name}`",
    ".pdf": "make text of it: `pdftotext {name} {name}.txt`",
    **dict.fromkeys((".zip", ".tar", ".7z"), "unpack it first"),
}
"""How files that are often at hand become files that are read, by their endings."""


@dataclass(frozen=True)
class InputFile:
    """A file below the folder that was given.

    Attributes:
        path: where it lies.
        name: its path below the folder, with `/`; bytes that are no UTF-8 as `\\xff`.
        size: in bytes.
        modified_ns: modification time.
        changed_ns: time of the last change to the file or its inode, which no program can set back; None: below `s3://`.
        skipped: why it is not looked into; None: it can be.
    """

    path: Path
    name: str
    size: int
    modified_ns: int
    changed_ns: int | None = None
    skipped: str | None = None

    @property
    def ending(self) -> str:
        """The ending in lower case, without a `.gz` after it; none of a file that is not looked into."""
        return "" if self.skipped else Path(self.name.lower().removesuffix(".gz")).suffix

    @property
    def format(self) -> str | None:
        """The format by the file's ending; None where Darklode knows none."""
        return FORMATS.get(self.ending)


def listing(path: str, *, remote: bool = False) -> list[InputFile]:
    """The file itself, or all files below a folder by relative path; `remote`: also below an `s3://` prefix.

    Hidden files and folders are left out. Listed as skipped are links that lead out of the folder or nowhere, links to
    folders (what they lead to is either outside or listed anyway), what is no regular file, and the folders of runs. An
    `s3://` prefix may be empty.

    Raises:
        InputError: there is no such file or folder, or it may not be looked into.
    """
    if remote and path.startswith(REMOTE):
        return sorted(_remote(Store(path)), key=lambda file: file.name)
    root = Path(path).expanduser()
    try:
        if root.is_file():
            return [_file(root, _display_name(Path(root.name)))]
        if root.is_dir():
            return sorted(_below(root), key=lambda file: file.name)
    except OSError as error:
        raise InputError(f"{error.filename or path} cannot be read: {error.strerror}; check its permissions") from error
    raise InputError(f"{path} does not exist; name a file or a folder to read")


def with_columns(files: list[InputFile]) -> list[InputFile]:
    """The files with columns; those that end with `.json` alone where there are no others: mostly they tell of them."""
    tabular = [file for file in files if file.format in TABULAR]
    return [file for file in tabular if file.ending != ".json"] or tabular


def conversions(files: list[InputFile]) -> list[str]:
    """How those of some files that are not read can become ones that are: a phrase for each ending."""
    files_by_ending: dict[str, list[InputFile]] = {}
    for file in files:
        if file.ending in CONVERSIONS:
            files_by_ending.setdefault(file.ending, []).append(file)
    return [
        f"{len(some)} {ending} file{'s' * (len(some) > 1)} cannot be read; "
        f"{CONVERSIONS[ending].format(name=shlex.quote(some[0].path.name))}"
        for ending, some in files_by_ending.items()
    ]


SMALL_BYTES = 1 << 20
"""Local files up to this size are compared by content; larger ones by size and times."""


def files_fingerprint(files: Iterable[InputFile]) -> str:
    """Hash the names of some files and what tells each from other versions of itself (16 hex digits).

    Archives, `rsync --times` and version control restore old modification times, so these alone do not show a change.
    """
    return key_of([[file.name, file.size, *_version(file)] for file in files])


def _version(file: InputFile) -> list[str | int | None]:
    if file.changed_ns is not None and file.size <= SMALL_BYTES:
        try:
            return [sha256(file.path.read_bytes()).hexdigest()]
        except OSError:  # whoever has to read it will report it
            pass
    return [file.modified_ns, file.changed_ns]


def source_fingerprint(path: str) -> str:
    """Hash the relative names and versions of all files below a path (16 hex digits); see `files_fingerprint`.

    Raises:
        InputError: there is no such path, or no file below it.
    """
    files = listing(path, remote=True)
    if not any(file for file in files if not file.skipped):
        raise InputError(f"{path} holds no files; name a file or a folder to read")
    return files_fingerprint(files)


def _below(root: Path) -> Iterator[InputFile]:
    inside = root.resolve()
    for folder, folders, names in os.walk(root, onerror=_raise):
        visible = [name for name in sorted(folders) if not name.startswith(".")]
        skipped = {name: reason for name in visible if (reason := _not_entered(Path(folder, name)))}
        folders[:] = [name for name in visible if name not in skipped]
        for name in [*skipped, *names]:
            path = Path(folder, name)
            if not name.startswith("."):
                yield _file(path, _display_name(path.relative_to(root)), skipped.get(name) or _not_read(path, inside))


RUNS_OWN = "inputs.json", "settings.yaml"
"""What lies in the folder of a run from its beginning on; a run must not read what it wrote."""


def _not_entered(folder: Path) -> str | None:
    if folder.is_symlink():
        return "link to a folder"
    return "folder of a run" if all((folder / name).exists() for name in RUNS_OWN) else None


def _not_read(path: Path, inside: Path) -> str | None:
    if not path.exists():
        return "link to nothing"
    if not path.is_file():
        return "no regular file"
    outside = path.is_symlink() and not path.resolve().is_relative_to(inside)
    return "link to what lies outside the folder" if outside else None


def _display_name(path: Path) -> str:
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def _remote(store: Store) -> Iterator[InputFile]:
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
            yield InputFile(Path(info.path), name, info.size, info.mtime_ns or 0)


def _file(path: Path, name: str, skipped: str | None = None) -> InputFile:
    if skipped:
        return InputFile(path, name, 0, 0, skipped=skipped)
    status = path.stat()
    return InputFile(path, name, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _raise(error: OSError) -> None:
    raise error


QUERY_ENDINGS = {".txt", ".text", ".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"}


@dataclass(frozen=True)
class FileChoice:
    """What to read: `format` is "folder" or one of the tabular formats for all files, or None for each file's own."""

    files: list[InputFile]
    format: str | None
    other_files: list[InputFile] = field(default_factory=list)


def choose_documents(path: str, file_format: str) -> FileChoice:
    """Pick the files that hold documents.

    Raises:
        InputError: there is no such path, or nothing in it that the format can read.
    """
    files = listing(path)
    if file_format == "beir" or (file_format == "auto" and _of_beir(files, "corpus")):
        return _beir(path, files, "corpus")
    if file_format == "folder" or (file_format == "auto" and any(file.format in PROSE for file in files)):
        return _split(path, files, PROSE, "folder")
    if file_format == "auto":
        return _split(path, files, TABULAR, None)
    return _choose_format(path, files, {file_format}, file_format)


def choose_queries(path: str, file_format: str) -> FileChoice:
    """Pick the files that hold queries; in a folder, one named `queries.*` is taken alone.

    Raises:
        InputError: there is no such path, nothing in it that the format can read, or several `queries.*`.
    """
    files = listing(path)
    if file_format == "beir":
        return _beir(path, files, "queries")
    if file_format != "auto":
        return _choose_format(path, files, {file_format}, file_format)
    query_files = [file for file in files if file.name.startswith("queries.") and file.ending in QUERY_ENDINGS]
    if len(query_files) > 1:
        names = ", ".join(file.name for file in query_files)
        raise InputError(f"{path} has several files of queries ({names}); name the one to read")
    readable = [file for file in files if file.ending in QUERY_ENDINGS]
    readable = [file for file in readable if file.ending != ".json"] or readable
    if not readable:
        raise InputError(
            nothing_to_read(path, "queries", files, "a .txt, .csv, .tsv, .jsonl or .parquet file, or a folder of them")
        )
    if query_files:
        return FileChoice(query_files, None, [file for file in files if file.skipped])
    return FileChoice(readable, None, _without(files, readable))


def _of_beir(files: list[InputFile], stem: str) -> list[InputFile]:
    return [file for file in files if file.name in {f"{stem}.jsonl", f"{stem}.jsonl.gz"} and not file.skipped]


def _beir(path: str, files: list[InputFile], stem: str) -> FileChoice:
    beir_files = _of_beir(files, stem)
    if not beir_files:
        raise InputError(f"{path} has no {stem}.jsonl; a BEIR folder has corpus.jsonl and queries.jsonl")
    if len(beir_files) > 1:
        raise InputError(f"{path} has both {stem}.jsonl and {stem}.jsonl.gz; name the one to read")
    return FileChoice(beir_files, "jsonl")


def _split(path: str, files: list[InputFile], formats: frozenset[str], reader: str | None) -> FileChoice:
    with_known_format = [file for file in files if file.format in formats] if formats is PROSE else with_columns(files)
    if not with_known_format:
        readable = (
            "a folder of Markdown, HTML or text files, or .jsonl, .csv, .tsv or .parquet files, or set "
            "ingest.documents.format"
        )
        raise InputError(nothing_to_read(path, "documents", files, readable))
    return FileChoice(with_known_format, reader, _without(files, with_known_format))


def nothing_to_read(path: str, content: str, files: list[InputFile], readable: str) -> str:
    """What to say where nothing can be read: what the files are, and what could be read instead.

    Args:
        path: as the user named it.
        content: was looked for, such as `documents`.
        files: those that are there.
        readable: what to name.
    """
    endings = Counter(file.ending or "no ending" for file in files if not file.skipped)
    summary = ", ".join(f"{count:,} of {ending}" for ending, count in endings.most_common(3))
    holds = f"{path} holds no {content}" + (f", but files: {summary}" if summary else "")
    return "; ".join([holds, *conversions(files), f"name {readable}"])


def _choose_format(path: str, files: list[InputFile], formats: set[str], reader: str) -> FileChoice:
    if not files:
        raise InputError(f"{path} holds no files; name a file or a folder to read")
    readable = [file for file in files if file.format in formats]
    chosen = readable or [file for file in files if not file.skipped]
    return FileChoice(chosen, reader, _without(files, chosen))


def _without(files: Iterable[InputFile], chosen: Iterable[InputFile]) -> list[InputFile]:
    names = {file.name for file in chosen}
    return [file for file in files if file.name not in names]
