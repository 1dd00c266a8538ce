"""A run read from its first byte to its last: which of its files are not what was written."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from darklode.pipeline.base.artifacts.intact import Intact
from darklode.pipeline.base.artifacts.output import record_of
from darklode.pipeline.base.artifacts.run import Run
from darklode.pipeline.base.artifacts.stage import Manifest, Part
from darklode.pipeline.base.artifacts.store import Store

READERS = 8
"""Files read at once: on S3 each is a request."""

AGAIN = "run the command that made it again"


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
    """Read all manifests, records of finished units, and the parts that these name; whatever stamps say."""
    parts = dict[str, Part]()
    for name in _json_files(run.store, "manifests"):
        yield _manifest(run.store, name, parts)
    for folder in run.store.folders("progress"):
        for name in _json_files(run.store, f"progress/{folder}"):
            yield _record(run.store, name, parts)
    with ThreadPoolExecutor(READERS) as readers:
        yield from readers.map(_looker(run.store), [parts[file] for file in sorted(parts)])


def _json_files(store: Store, folder: str) -> list[str]:
    return sorted(name for name in store.sizes(folder) if name.endswith(".json"))


def _manifest(store: Store, name: str, parts: dict[str, Part]) -> Looked:
    data = store.read(name) or b""
    try:
        outputs = Manifest.from_json(data).outputs
    except ValueError as error:
        wrong = f"is damaged ({error}); delete it and run the command that made the run again"
        return Looked(name, len(data), wrong)
    parts |= {part.file: part for of_table in outputs.values() for part in of_table}
    return Looked(name, len(data), None)


def _record(store: Store, name: str, parts: dict[str, Part]) -> Looked:
    data = store.read(name) or b""
    record = record_of(data)
    if record is None:
        return Looked(name, len(data), "is damaged; the next run makes its piece of work again")
    parts |= {one["file"]: Part(**one) for of_table in record["parts"].values() for one in of_table}
    return Looked(name, len(data), None)


def _looker(store: Store) -> Callable[[Part], Looked]:
    intact = Intact(store)

    def look(part: Part) -> Looked:
        if intact.holds(part):
            return Looked(part.file, part.size, None)
        gone = store.size(part.file) is None
        how, again = ("is missing", AGAIN) if gone else ("is damaged", f"delete it and {AGAIN}")
        return Looked(part.file, part.size, f"{how}; {again}")

    return look
