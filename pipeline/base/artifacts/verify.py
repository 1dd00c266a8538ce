"""A run read from its first byte to its last: which of its files are missing or not what was written."""

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from darklode.pipeline.base.artifacts.integrity import IntegrityCheck
from darklode.pipeline.base.artifacts.output import record_of
from darklode.pipeline.base.artifacts.run import Run
from darklode.pipeline.base.artifacts.stage import Manifest, Part
from darklode.pipeline.base.artifacts.store import Store
from darklode.schemas.tables import TABLES

READERS = 8
"""Files read at once: on S3 each is a request."""

AGAIN = "run the command that made it again"
RUN_AGAIN = "run the command that made the run again"

_PART = re.compile(r"tables/(?P<table>[^/]+)/(?:.+/)?(?P<stage>[^./][^/]*)-\d{5,}-[0-9a-f]{8}\.parquet")


@dataclass(frozen=True)
class Looked:
    """A file that was read.

    Attributes:
        file: its name in the run.
        size: bytes that it should have, of a part.
        wrong: what is the matter with it, and what to do; None where it is whole.
    """

    file: str
    size: int
    wrong: str | None


def verify(run: Run) -> Iterator[Looked]:
    """Read all manifests, records of finished units, and the parts that these name; whatever stamps say.

    A manifest is missing if another one has read a table that none wrote, or if parts of a stage lie there that neither
    a manifest nor a record names.
    """
    parts, manifests, unfinished = dict[str, Part](), dict[str, Manifest](), set[str]()
    for name in _json_files(run.store, "manifests"):
        yield _manifest(run.store, name, parts, manifests)
    for folder in run.store.folders("progress"):
        for name in _json_files(run.store, f"progress/{folder}"):
            unfinished.add(folder)
            yield _record(run.store, name, parts)
    yield from _missing_manifests(run.store, manifests, unfinished)
    with ThreadPoolExecutor(READERS) as readers:
        yield from readers.map(_make_checker(run.store), [parts[file] for file in sorted(parts)])


def _missing_manifests(store: Store, manifests: Mapping[str, Manifest], unfinished: set[str]) -> Iterator[Looked]:
    """What is wrong with a run because of manifests that are not there.

    Args:
        manifests: the ones that can be read, by file.
        unfinished: stages with records of finished units.
    """
    manifest_names = {name.rpartition("/")[2].removesuffix(".json") for name in _json_files(store, "manifests")}
    orphans: dict[str, list[str]] = {}
    for file in sorted(store.sizes("tables", recursive=True)):
        match = _PART.fullmatch(file)
        if match and match["stage"] not in manifest_names | unfinished:
            orphans.setdefault(match["stage"], []).append(match["table"])
    for stage, tables in orphans.items():
        lie = f"though files of the stage lie in tables/{', tables/'.join(dict.fromkeys(tables))}"
        yield Looked(
            f"manifests/{stage}.json", 0, f"is missing (deleted, or the stage was interrupted), {lie}; {RUN_AGAIN}"
        )
    if len(manifests) < len(manifest_names):
        return  # which tables a damaged manifest names is not known
    written_tables = {table for manifest in manifests.values() for table in manifest.outputs}
    written_tables |= {table for tables in orphans.values() for table in tables}
    for name, manifest in manifests.items():
        for table in sorted((manifest.inputs.keys() & TABLES.keys()) - written_tables):
            yield Looked(
                f"tables/{table}",
                0,
                f"has no manifest of the stage that wrote it, and {name} names it as input; {RUN_AGAIN}",
            )


def _json_files(store: Store, folder: str) -> list[str]:
    return sorted(name for name in store.sizes(folder) if name.endswith(".json"))


def _manifest(store: Store, name: str, parts: dict[str, Part], manifests: dict[str, Manifest]) -> Looked:
    data = store.read(name) or b""
    try:
        manifest = Manifest.from_json(data)
    except ValueError as error:
        return Looked(name, len(data), f"is damaged ({error}); delete it and {RUN_AGAIN}")
    manifests[name], outputs = manifest, manifest.outputs
    parts |= {part.file: part for of_table in outputs.values() for part in of_table}
    return Looked(name, len(data), None)


def _record(store: Store, name: str, parts: dict[str, Part]) -> Looked:
    data = store.read(name) or b""
    record = record_of(data)
    if record is None:
        return Looked(name, len(data), "is damaged; the next run makes its piece of work again")
    parts |= {part["file"]: Part(**part) for of_table in record["parts"].values() for part in of_table}
    return Looked(name, len(data), None)


def _make_checker(store: Store) -> Callable[[Part], Looked]:
    intact = IntegrityCheck(store)

    def look(part: Part) -> Looked:
        if intact.is_unchanged(part):
            return Looked(part.file, part.size, None)
        gone = store.size(part.file) is None
        how, again = ("is missing", AGAIN) if gone else ("is damaged", f"delete it and {AGAIN}")
        return Looked(part.file, part.size, f"{how}; {again}")

    return look
