"""Read a whole run and report missing and damaged files."""

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from darklode.pipeline.base.artifacts.integrity import IntegrityCheck
from darklode.pipeline.base.artifacts.run import Run
from darklode.pipeline.base.artifacts.stage import Manifest, Part
from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.artifacts.units import parse_unit_record
from darklode.schemas.tables import TABLES

N_READERS = 8
"""Files read in parallel, for the latency of S3."""

WRITE_AGAIN = "run the command that wrote it again"
RUN_AGAIN = "run the command of this run again"

_PART_FILE = re.compile(r"tables/(?P<table>[^/]+)/(?:.+/)?(?P<stage>[^./][^/]*)-\d{5,}-[0-9a-f]{8}\.parquet")


@dataclass(frozen=True)
class FileCheck:
    """Result of checking a file.

    Attributes:
        file: file name in the run.
        size: size in bytes; of a part, the expected one.
        problem: what is wrong and what to do; None if the file is intact.
    """

    file: str
    size: int
    problem: str | None


def verify(run: Run) -> Iterator[FileCheck]:
    """Read all manifests, records of finished units, and their parts, ignoring verification stamps.

    A manifest counts as missing if another stage has read a table that no manifest lists as output, or if there are
    part files of a stage without manifest and records.
    """
    parts: dict[str, Part] = {}
    manifests: dict[str, Manifest] = {}
    unfinished_stages: set[str] = set()
    for name in _json_files(run.store, "manifests"):
        yield _check_manifest(run.store, name, parts, manifests)
    for folder in run.store.folders("progress"):
        for name in _json_files(run.store, f"progress/{folder}"):
            unfinished_stages.add(folder)
            yield _check_record(run.store, name, parts)
    yield from _missing_manifests(run.store, manifests, unfinished_stages)
    with ThreadPoolExecutor(N_READERS) as readers:
        yield from readers.map(_make_checker(run.store), [parts[file] for file in sorted(parts)])


def _missing_manifests(store: Store, manifests: Mapping[str, Manifest], unfinished: set[str]) -> Iterator[FileCheck]:
    """Yield problems of missing manifests.

    Args:
        manifests: valid manifests by file name.
        unfinished: stages with records of finished units.
    """
    manifest_names = {name.rpartition("/")[2].removesuffix(".json") for name in _json_files(store, "manifests")}
    orphans: dict[str, list[str]] = {}
    for file in sorted(store.sizes("tables", recursive=True)):
        match = _PART_FILE.fullmatch(file)
        if match and match["stage"] not in manifest_names | unfinished:
            orphans.setdefault(match["stage"], []).append(match["table"])
    for stage, tables in orphans.items():
        places = f"tables/{', tables/'.join(dict.fromkeys(tables))}"
        yield FileCheck(
            f"manifests/{stage}.json",
            0,
            f"is missing (deleted or interrupted), but its files are in {places}; {RUN_AGAIN}",
        )
    if len(manifests) < len(manifest_names):
        return  # the outputs of a damaged manifest are unknown
    written_tables = {table for manifest in manifests.values() for table in manifest.outputs}
    written_tables |= {table for tables in orphans.values() for table in tables}
    for name, manifest in manifests.items():
        for table in sorted((manifest.inputs.keys() & TABLES.keys()) - written_tables):
            yield FileCheck(
                f"tables/{table}",
                0,
                f"is an input of {name}, but no manifest lists it as output; {RUN_AGAIN}",
            )


def _json_files(store: Store, folder: str) -> list[str]:
    """Names of the JSON files in a folder, sorted."""
    return sorted(name for name in store.sizes(folder) if name.endswith(".json"))


def _check_manifest(store: Store, name: str, parts: dict[str, Part], manifests: dict[str, Manifest]) -> FileCheck:
    """Check a manifest; if it is valid, add it to `manifests` and its parts to `parts`, by file name."""
    data = store.read(name) or b""
    try:
        manifest = Manifest.from_json(data)
    except ValueError as error:
        return FileCheck(name, len(data), f"is damaged ({error}); delete it and {RUN_AGAIN}")
    manifests[name] = manifest
    parts |= {part.file: part for table_parts in manifest.outputs.values() for part in table_parts}
    return FileCheck(name, len(data), None)


def _check_record(store: Store, name: str, parts: dict[str, Part]) -> FileCheck:
    """Check the record of a finished unit; if it is valid, add its parts to `parts`, by file name."""
    data = store.read(name) or b""
    record = parse_unit_record(data)
    if record is None:
        return FileCheck(name, len(data), "is damaged; the next run repeats this unit of work")
    parts |= {part["file"]: Part(**part) for table_parts in record["parts"].values() for part in table_parts}
    return FileCheck(name, len(data), None)


def _make_checker(store: Store) -> Callable[[Part], FileCheck]:
    """A function that reads a part completely and reports whether it is intact."""
    integrity = IntegrityCheck(store)

    def check(part: Part) -> FileCheck:
        if integrity.is_unchanged(part):
            return FileCheck(part.file, part.size, None)
        is_missing = store.size(part.file) is None
        problem, remedy = ("is missing", WRITE_AGAIN) if is_missing else ("is damaged", f"delete it and {WRITE_AGAIN}")
        return FileCheck(part.file, part.size, f"{problem}; {remedy}")

    return check
