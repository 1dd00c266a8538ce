"""Some records of a text file, and the check that their bytes can be read."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.ingest.files import File
from pipeline.ingest.ledger import PAYLOAD, Ledger

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """Some records of a file: record i is `data[starts[i]:stops[i]]`, line end included; empty lines are no records.

    `lines` are the lines they begin on, from 1; `faults` the reasons, by record, why some cannot be read.
    """

    data: bytes
    starts: Ints
    stops: Ints
    lines: Ints
    faults: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, at: int) -> bytes:
        return self.data[self.starts[at] : self.stops[at]]

    def shown(self, at: int) -> str:
        """The beginning of a record, for people: more than a payload holds, since masks shorten it."""
        start = int(self.starts[at])
        data = self.data[start : min(int(self.stops[at]), start + 4 * PAYLOAD)]
        return data.decode(errors="replace").rstrip("\r\n")

    def span(self, low: int, high: int) -> "Records":
        """Records `low` to `high`, the latter not included, with their own data only."""
        if low >= high:
            return Records(b"", self.starts[:0], self.stops[:0], self.lines[:0])
        begin, end = int(self.starts[low]), int(self.stops[high - 1])
        faults = {at - low: reason for at, reason in self.faults.items() if low <= at < high}
        lines = self.lines[low:high]
        return Records(self.data[begin:end], self.starts[low:high] - begin, self.stops[low:high] - begin, lines, faults)

    def without(self, bad: set[int]) -> "Records":
        """All records but some."""
        kept = [at for at in range(len(self)) if at not in bad]
        sizes = (self.stops - self.starts)[kept]
        stops = np.cumsum(sizes)
        return Records(b"".join(map(self.raw, kept)), stops - sizes, stops, self.lines[kept])


def sound(records: Records, file: File, ledger: Ledger) -> Records:
    """Count the records, and turn away those that are too long, hold NUL bytes or are not UTF-8."""
    ledger.saw(len(records))
    faults = records.faults | _faults_of_bytes(records)
    for at, reason in sorted(faults.items()):
        ledger.reject(reason, file.name, int(records.lines[at]), records.shown(at))
    return records.without(set(faults)) if faults else records


def _faults_of_bytes(records: Records) -> dict[int, str]:
    if _is_utf8(records.data) and b"\0" not in records.data:
        return {}
    faults = {}
    for at in range(len(records)):
        raw = records.raw(at)
        if b"\0" in raw:
            faults[at] = "NUL byte"
        elif not _is_utf8(raw):
            faults[at] = "not UTF-8"
    return {at: reason for at, reason in faults.items() if at not in records.faults}


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def lines_of(records: Records) -> pa.Array:
    """The records' line numbers, as a column."""
    return pa.array(records.lines, pa.int64())
