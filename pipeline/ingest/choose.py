"""Which of a path's files hold documents or queries, and how each is to be read."""

from dataclasses import dataclass, field

from pipeline.errors import InputError
from pipeline.ingest.files import PROSE, TABULAR, File, listing

QUERY_ENDINGS = {".txt", ".text", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"}


@dataclass(frozen=True)
class Choice:
    """What to read: `format` is "folder" or one of the tabular formats for all files, or None for each file's own."""

    files: list[File]
    format: str | None
    others: list[File] = field(default_factory=list)


def choose_documents(path: str, wanted: str) -> Choice:
    """Pick the files that hold documents.

    Raises:
        InputError: there is no such path, or nothing in it that the format can read.
    """
    files = listing(path)
    if wanted == "beir" or (wanted == "auto" and _of_beir(files, "corpus")):
        return _beir(path, files, "corpus")
    if wanted == "folder" or (wanted == "auto" and any(file.format in PROSE for file in files)):
        return _split(path, files, PROSE, "folder")
    if wanted == "auto":
        return _split(path, files, TABULAR, None)
    return _forced(path, files, {wanted}, wanted)


def choose_queries(path: str, wanted: str) -> Choice:
    """Pick the files that hold queries; in a folder, one named `queries.*` is taken alone.

    Raises:
        InputError: there is no such path, nothing in it that the format can read, or several `queries.*`.
    """
    files = listing(path)
    if wanted == "beir":
        return _beir(path, files, "queries")
    if wanted != "auto":
        return _forced(path, files, {wanted}, wanted)
    named = [file for file in files if file.name.startswith("queries.") and file.ending in QUERY_ENDINGS]
    if len(named) > 1:
        names = ", ".join(file.name for file in named)
        raise InputError(f"{path} has several files of queries ({names}); name the one to read")
    known = [file for file in files if file.ending in QUERY_ENDINGS]
    if not known:
        raise InputError(
            f"{path} holds no queries; name a .txt, .csv, .tsv, .jsonl or .parquet file, or a folder of them"
        )
    if named:
        return Choice(named, None)
    return Choice(known, None, [file for file in files if file not in known])


def _of_beir(files: list[File], stem: str) -> list[File]:
    return [file for file in files if file.name in {f"{stem}.jsonl", f"{stem}.jsonl.gz"}]


def _beir(path: str, files: list[File], stem: str) -> Choice:
    found = _of_beir(files, stem)
    if not found:
        raise InputError(f"{path} has no {stem}.jsonl; a BEIR folder has corpus.jsonl and queries.jsonl")
    if len(found) > 1:
        raise InputError(f"{path} has both {stem}.jsonl and {stem}.jsonl.gz; name the one to read")
    return Choice(found, "jsonl")


def _split(path: str, files: list[File], formats: frozenset[str], reader: str | None) -> Choice:
    known = [file for file in files if file.format in formats]
    if not known:
        raise InputError(
            f"{path} holds no documents; name a folder of Markdown, HTML or text files, "
            "or .jsonl, .csv, .tsv or .parquet files, or set ingest.documents.format"
        )
    return Choice(known, reader, [file for file in files if file.format not in formats])


def _forced(path: str, files: list[File], formats: set[str], reader: str) -> Choice:
    if not files:
        raise InputError(f"{path} holds no files; name a file or a folder to read")
    known = [file for file in files if file.format in formats]
    return Choice(known or files, reader, [file for file in files if known and file not in known])
