"""List the files below a path, detect their formats, and choose those with documents or queries."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pyarrow.fs as pafs

from darklode.pipeline.base.artifacts import Store, key_of
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.patterns import split_pattern

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
OFFICE_FORMATS = {".pdf": ("pdf", "pypdf"), ".docx": ("docx", "docx"), ".xlsx": ("xlsx", "openpyxl")}
"""Formats of the extra `office` with the package that reads them; unknown formats without it."""
BINARY_FORMATS = frozenset({"pdf", "docx"})
PROSE_FORMATS = frozenset({"markdown", "html", "text"}) | BINARY_FORMATS
TABULAR_FORMATS = frozenset({"jsonl", "csv", "parquet", "xlsx"})
REMOTE_PREFIX = "s3://"

_SPREADSHEET_ADVICE = "save it as CSV (UTF-8) there, or run `soffice --headless --convert-to csv {name}`"
_OFFICE_ADVICE = 'or install its reader: pip install "darklode[office]"'
_TEXT_DOCUMENT_ADVICE = "make text of it: `pandoc -o {name}.md {name}`"
CONVERSIONS = {
    **dict.fromkeys((".xls", ".xlsm", ".ods", ".numbers"), _SPREADSHEET_ADVICE),
    **dict.fromkeys((".odt", ".rtf", ".epub"), _TEXT_DOCUMENT_ADVICE),
    ".doc": "make text of it: `soffice --headless --convert-to txt {name}`",
    ".docx": f"{_TEXT_DOCUMENT_ADVICE}; {_OFFICE_ADVICE}",
    ".pdf": f"make text of it: `pdftotext {{name}} {{name}}.txt`; {_OFFICE_ADVICE}",
    ".xlsx": f"{_SPREADSHEET_ADVICE}; {_OFFICE_ADVICE}",
    **dict.fromkeys((".zip", ".tar", ".7z"), "unpack it first"),
}
"""Advice on how to convert common unsupported formats, by file name extension."""


@dataclass(frozen=True)
class InputFile:
    """A file of a source.

    Attributes:
        path: its location.
        name: path relative to the source, with `/`; bytes that are not UTF-8 as `\\xff`.
        size: in bytes.
        modified_ns: modification time.
        changed_ns: time of the last change to content or inode, which no program can set; None on `s3://`.
        skipped: reason why it is not read; None: it is.
    """

    path: Path
    name: str
    size: int
    modified_ns: int
    changed_ns: int | None = None
    skipped: str | None = None

    @property
    def ending(self) -> str:
        """File name extension in lower case, ignoring `.gz`; empty for skipped files."""
        return "" if self.skipped else Path(self.name.lower().removesuffix(".gz")).suffix

    @property
    def format(self) -> str | None:
        """Format by the extension; None if unknown, or if the package that reads it is not installed."""
        office_format, package = OFFICE_FORMATS.get(self.ending, (None, ""))
        return office_format if office_format and find_spec(package) else FORMATS.get(self.ending)


def list_files(path: str, *, remote: bool = False) -> list[InputFile]:
    """The file itself, or all files below a folder, sorted by name; with `remote`, also below an `s3://` prefix.

    A path may have a pattern, as for `split_pattern`; names are then relative to the folder before it.

    Hidden files and folders are omitted. Listed as skipped: broken links, links out of the folder, links to folders,
    irregular files, and folders of runs. An `s3://` prefix may be empty.

    Raises:
        InputError: the path does not exist or cannot be read.
    """
    pattern = split_pattern(path)
    if pattern and (path.startswith(REMOTE_PREFIX) or not Path(path).expanduser().exists()):
        matching = [file for file in list_files(pattern[0], remote=remote) if pattern[1].fullmatch(file.name)]
        if not matching:
            raise InputError(f"{path} matches no file; check the pattern")
        return matching
    if remote and path.startswith(REMOTE_PREFIX):
        return sorted(_remote_files(Store(path)), key=lambda file: file.name)
    root = Path(path).expanduser()
    try:
        if root.is_file():
            return [_file(root, _display_name(Path(root.name)))]
        if root.is_dir():
            return sorted(_files_below(root), key=lambda file: file.name)
    except OSError as error:
        raise InputError(f"{error.filename or path} cannot be read: {error.strerror}; check its permissions") from error
    raise InputError(f"{path} does not exist; give a file or a folder")


def tabular_files(files: list[InputFile]) -> list[InputFile]:
    """The tabular files; `.json` files and workbooks only if there are no others: most describe other files."""
    tabular = [file for file in files if file.format in TABULAR_FORMATS]
    return [file for file in tabular if file.ending not in {".json", ".xlsx"}] or tabular


def conversion_advice(files: list[InputFile]) -> list[str]:
    """Advice on how to convert the unsupported files, one phrase per extension."""
    files_by_ending: dict[str, list[InputFile]] = {}
    for file in files:
        if file.ending in CONVERSIONS and file.format is None:
            files_by_ending.setdefault(file.ending, []).append(file)
    return [
        f"{len(group)} {ending} file{'s' * (len(group) > 1)} cannot be read; "
        f"{CONVERSIONS[ending].format(name=shlex.quote(group[0].path.name))}"
        for ending, group in files_by_ending.items()
    ]


MAX_HASHED_BYTES = 1 << 20
"""Local files up to this size are compared by content; larger ones by size and times."""


def files_fingerprint(files: Iterable[InputFile]) -> str:
    """Hash of names and versions of files (16 hex digits).

    Modification times are not enough: archives, `rsync --times` and version control restore old ones.
    """
    return key_of([[file.name, file.size, *_version(file)] for file in files])


def _version(file: InputFile) -> list[str | int | None]:
    """What identifies a file's content: its hash if it is small and local, else its times."""
    if file.changed_ns is not None and file.size <= MAX_HASHED_BYTES:
        try:
            return [sha256(file.path.read_bytes()).hexdigest()]
        except OSError:  # the reader reports it
            pass
    return [file.modified_ns, file.changed_ns]


def source_fingerprint(path: str) -> str:
    """`files_fingerprint` of all files below a path.

    Raises:
        InputError: the path does not exist or contains no files.
    """
    files = list_files(path, remote=True)
    if not any(file for file in files if not file.skipped):
        raise InputError(f"{path} contains no files; give a file or a folder with files")
    return files_fingerprint(files)


def _files_below(root: Path) -> Iterator[InputFile]:
    """Yield all visible files below a folder, and the folders that are skipped."""
    resolved_root = root.resolve()
    for folder, folders, names in os.walk(root, onerror=_raise):
        visible = [name for name in sorted(folders) if not name.startswith(".")]
        skipped = {name: reason for name in visible if (reason := _skip_folder_reason(Path(folder, name)))}
        folders[:] = [name for name in visible if name not in skipped]
        for name in [*skipped, *names]:
            path = Path(folder, name)
            if not name.startswith("."):
                yield _file(
                    path,
                    _display_name(path.relative_to(root)),
                    skipped.get(name) or _skip_reason(path, resolved_root),
                )


RUN_FILES = "inputs.json", "settings.yaml"
"""Files that identify the folder of a run; a run must not read its own output."""


def _skip_folder_reason(folder: Path) -> str | None:
    """Reason why a folder is not searched; None if it is."""
    if folder.is_symlink():
        return "link to a folder"
    return "folder of a run" if all((folder / name).exists() for name in RUN_FILES) else None


def _skip_reason(path: Path, root: Path) -> str | None:
    """Reason why a file is not read; None if it is. Links must not lead out of `root`, the folder given by the user."""
    if not path.exists():
        return "broken link"
    if not path.is_file():
        return "not a regular file"
    is_outside = path.is_symlink() and not path.resolve().is_relative_to(root)
    return "link out of the folder" if is_outside else None


def _display_name(path: Path) -> str:
    """A path with `/`, as text: names of files may contain bytes that are not UTF-8."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def _remote_files(store: Store) -> Iterator[InputFile]:
    """Yield the file at an `s3://` address, or all visible files below the prefix."""
    root = store.path("").rstrip("/")
    try:
        root_info = store.filesystem.get_file_info(root)
        selector = pafs.FileSelector(root, allow_not_found=True, recursive=True)
        infos = [root_info] if root_info.is_file else store.filesystem.get_file_info(selector)
    except OSError as error:
        raise InputError(
            f"{store.url} cannot be read ({error}); check the bucket, its permissions and AWS_*"
        ) from error
    for info in infos:
        name = info.base_name if root_info.is_file else info.path.removeprefix(f"{root}/")
        if info.is_file and not any(part.startswith(".") for part in name.split("/")):
            yield InputFile(Path(info.path), name, info.size, info.mtime_ns or 0)


def _file(path: Path, name: str, skipped: str | None = None) -> InputFile:
    """Describe a local file; `skipped` is the reason why it is not read, None if it is."""
    if skipped:
        return InputFile(path, name, 0, 0, skipped=skipped)
    status = path.stat()
    return InputFile(path, name, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _raise(error: OSError) -> None:
    raise error


QUERY_ENDINGS = {".txt", ".text", ".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"}


@dataclass(frozen=True)
class FileChoice:
    """Files to read.

    Attributes:
        files: files with documents or queries.
        format: "folder" for a file per document, a tabular format for all files, or None for each by its extension.
        other_files: files of other formats and skipped ones; they are rejected.
    """

    files: list[InputFile]
    format: str | None
    other_files: list[InputFile] = field(default_factory=list)


def choose_documents(path: str, file_format: str) -> FileChoice:
    """Choose the files with documents.

    Raises:
        InputError: the path does not exist, or contains no file of the format.
    """
    files = list_files(path)
    if file_format == "beir" or (file_format == "auto" and _beir_files(files, "corpus")):
        return _choose_beir(path, files, "corpus")
    if file_format == "folder" or (file_format == "auto" and _has_prose(files)):
        return _choose_formats(path, files, PROSE_FORMATS, "folder")
    if file_format == "auto":
        return _choose_formats(path, files, TABULAR_FORMATS, None)
    return _choose_format(path, files, {file_format}, file_format)


def _has_prose(files: list[InputFile]) -> bool:
    """Whether files are documents each; a PDF or Word file beside tables describes them."""
    formats = {file.format for file in files}
    return bool(formats & (PROSE_FORMATS - BINARY_FORMATS)) or (
        bool(formats & BINARY_FORMATS) and not formats & TABULAR_FORMATS
    )


def choose_queries(path: str, file_format: str) -> FileChoice:
    """Choose the files with queries; if a folder has a file named `queries.*`, only that one.

    Raises:
        InputError: the path does not exist, contains no file of the format, or several `queries.*`.
    """
    files = list_files(path)
    if file_format == "beir":
        return _choose_beir(path, files, "queries")
    if file_format != "auto":
        return _choose_format(path, files, {file_format}, file_format)
    query_files = [file for file in files if file.name.startswith("queries.") and _can_hold_queries(file)]
    if len(query_files) > 1:
        names = ", ".join(file.name for file in query_files)
        raise InputError(f"{path} has several query files ({names}); give the path of one")
    readable = [file for file in files if _can_hold_queries(file)]
    readable = [file for file in readable if file.ending not in {".json", ".xlsx"}] or readable
    if not readable:
        raise InputError(
            missing_files_message(
                path, "queries", files, "a .txt, .csv, .tsv, .jsonl or .parquet file, or a folder of them"
            )
        )
    if query_files:
        return FileChoice(query_files, None, [file for file in files if file.skipped])
    return FileChoice(readable, None, _other_files(files, readable))


def _can_hold_queries(file: InputFile) -> bool:
    return file.ending in QUERY_ENDINGS or file.format == "xlsx"


def _beir_files(files: list[InputFile], stem: str) -> list[InputFile]:
    return [file for file in files if file.name in {f"{stem}.jsonl", f"{stem}.jsonl.gz"} and not file.skipped]


def _choose_beir(path: str, files: list[InputFile], stem: str) -> FileChoice:
    beir_files = _beir_files(files, stem)
    if not beir_files:
        raise InputError(f"{path} has no {stem}.jsonl; a BEIR folder has corpus.jsonl and queries.jsonl")
    if len(beir_files) > 1:
        raise InputError(f"{path} has both {stem}.jsonl and {stem}.jsonl.gz; give the path of one")
    return FileChoice(beir_files, "jsonl")


def _choose_formats(path: str, files: list[InputFile], formats: frozenset[str], reader: str | None) -> FileChoice:
    """Choose the files whose extension is of one of the formats; raises InputError if there are none."""
    with_known_format = (
        [file for file in files if file.format in formats] if formats is PROSE_FORMATS else tabular_files(files)
    )
    if not with_known_format:
        readable = (
            "a folder of Markdown, HTML or text files, or .jsonl, .csv, .tsv or .parquet files, or set "
            "ingest.documents.format"
        )
        raise InputError(missing_files_message(path, "documents", files, readable))
    return FileChoice(with_known_format, reader, _other_files(files, with_known_format))


def missing_files_message(path: str, content: str, files: list[InputFile], readable: str) -> str:
    """The error message if nothing can be read: which files are there, how to convert them, what to give instead.

    Args:
        path: as given by the user.
        content: what was expected, such as `documents`.
        files: the files found.
        readable: supported files.
    """
    endings = Counter(file.ending or "no ending" for file in files if not file.skipped)
    summary = ", ".join(f"{count:,} {ending}" for ending, count in endings.most_common(3))
    problem = f"{path} contains no {content}" + (f", only other files ({summary})" if summary else "")
    return "; ".join([problem, *conversion_advice(files), f"give {readable}"])


def _choose_format(path: str, files: list[InputFile], formats: set[str], reader: str) -> FileChoice:
    """Choose the files of a format set by the user; all files if none has its extension."""
    if not files:
        raise InputError(f"{path} contains no files; give a file or a folder with files")
    readable = [file for file in files if file.format in formats]
    chosen_files = readable or [file for file in files if not file.skipped]
    return FileChoice(chosen_files, reader, _other_files(files, chosen_files))


def _other_files(files: Iterable[InputFile], chosen: Iterable[InputFile]) -> list[InputFile]:
    chosen_names = {file.name for file in chosen}
    return [file for file in files if file.name not in chosen_names]
