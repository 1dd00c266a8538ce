"""What a ledger holds of one judge: an index in memory, the replies read from the parts when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.artifacts.store import Store
from pipeline.encoders.keys import Keys
from pipeline.errors import ArtifactError
from pipeline.judges.asker import Answered
from pipeline.judges.levels import Level, Levels
from pipeline.judges.port import REPLIES
from pipeline.judges.verdict_parts import ENDING, Damaged, VerdictPart, pair_keys

_LOOKS = 20
_READERS = 8
_PART = 1 << 32
"""A place is the part's number times this, and the row in it."""
_Ints = NDArray[np.int64]
_Found = tuple[Keys, _Ints]
Result = TypeVar("Result")


class Known:
    """One judge's verdicts as they were at the last `refresh`; parts may be merged or added meanwhile.

    Memory: 36 bytes a verdict, and about three times that while the index grows.

    Args:
        store: where the ledger lies.
        folder: the judge's.
        judge_id: parts of another judge are not trusted.
    """

    def __init__(self, store: Store, folder: str, judge_id: str) -> None:
        self._store, self._folder, self._judge_id = store, folder, judge_id
        self._damaged: dict[str, str] = {}
        self._forget()

    @property
    def damaged(self) -> list[str]:
        """Parts that are skipped because they cannot be trusted, each with the reason."""
        return [f"{self._store.path(name)}: {reason}" for name, reason in sorted(self._damaged.items())]

    def refresh(self) -> None:
        """Look for parts that were written since.

        Raises:
            ArtifactError: parts come and go faster than they can be read.
        """
        for _ in range(_LOOKS):
            names = [name for name in self._store.sizes(self._folder) if name.endswith(ENDING)]
            fresh = sorted(name for name in names if name not in self._numbers and name not in self._damaged)
            with ThreadPoolExecutor(_READERS) as readers:
                found = dict(zip(fresh, readers.map(self._load, fresh), strict=True))
            gone = [name for name, basis in found.items() if not basis and name not in self._damaged]
            self._add({name: found.pop(name) for name in fresh})
            if not gone:
                return
        raise self._restless()

    def lookup(self, pairs: pa.Table) -> Answered:
        """The verdicts that stand, of those pairs that have one.

        Args:
            pairs: any pairs, with at least `query_hash` and `chunk_hash`.

        Raises:
            ArtifactError: parts come and go faster than they can be read.
        """
        keys = pair_keys(pairs)

        def look() -> Answered:
            places = self._levels.find(keys)
            rows = np.flatnonzero(places >= 0)
            return Answered(rows, self._take(places[rows]))

        return self._steadily(look)

    def counts(self, *sums: str) -> dict[str, int]:
        """`verdicts`, `relevant`, `nulls`, and the sums of integer columns, over the verdicts that stand."""
        self._levels.merge()

        def count() -> dict[str, int]:
            found = dict.fromkeys(("verdicts", "relevant", "nulls", *sums), 0)
            for level in self._levels:
                for name, _, rows in self._by_part(level.places):
                    part = self._read(name, ["relevant", *sums], rows)
                    found["verdicts"] += len(part)
                    found["nulls"] += part["relevant"].null_count
                    for column in ("relevant", *sums):
                        found[column] += pc.sum(part[column], min_count=0).as_py()
            return found

        return self._steadily(count)

    def _forget(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._levels = Levels()

    def _load(self, name: str) -> _Found | None:
        """A part's keys and precedences; None where it is gone or damaged."""
        try:
            return VerdictPart(self._store, name, self._judge_id).basis()
        except FileNotFoundError:
            return None
        except Damaged as error:
            self._damaged[name] = str(error)
            return None

    def _add(self, found: dict[str, _Found | None]) -> None:
        whole = [(name, *basis) for name, basis in found.items() if basis]
        found.clear()  # memory: what follows copies it
        if not whole:
            return
        first = len(self._names)
        self._names += [name for name, _, _ in whole]
        self._numbers |= {name: first + number for number, (name, _, _) in enumerate(whole)}
        sizes = [len(keys) for _, keys, _ in whole]
        keys, order = np.concatenate([keys for _, keys, _ in whole]), np.concatenate([order for _, _, order in whole])
        whole.clear()
        places = np.concatenate([np.arange(size) + (first + number) * _PART for number, size in enumerate(sizes)])
        self._levels.add(Level.of(keys, order, places))

    def _by_part(self, places: _Ints) -> Iterator[tuple[str, _Ints, _Ints]]:
        """For each part that places lie in: its name, which of the places, and their rows in it, ascending."""
        order = np.argsort(places)
        parts, rows = np.divmod(places[order], _PART)
        starts = np.flatnonzero(np.diff(parts, prepend=-1))
        for group, start in zip(np.split(order, starts[1:]), starts.tolist(), strict=True) if len(order) else ():
            yield self._names[int(parts[start])], group, rows[start : start + len(group)]

    def _take(self, places: _Ints) -> pa.Table:
        """The replies at places, in that order."""
        tables, orders = [REPLIES.empty_table()], [np.empty(0, dtype=np.int64)]
        for name, group, rows in self._by_part(places):
            tables.append(self._read(name, REPLIES.names, rows))
            orders.append(group)
        back = np.argsort(np.concatenate(orders))
        return pa.concat_tables(tables).take(pa.array(back)).combine_chunks()

    def _read(self, name: str, columns: list[str], rows: _Ints) -> pa.Table:
        try:
            return VerdictPart(self._store, name, self._judge_id).read(columns, rows)
        except Damaged as error:
            self._damaged[name] = str(error)
            raise

    def _steadily(self, action: Callable[[], Result]) -> Result:
        """Do it; start over from the folder as it is now where a part turns out to be gone or torn."""
        for _ in range(_LOOKS):
            try:
                return action()
            except (FileNotFoundError, Damaged):
                self._forget()
                self.refresh()
        raise self._restless()

    def _restless(self) -> ArtifactError:
        place = self._store.path(self._folder)
        return ArtifactError(f"the verdicts in {place} change faster than they can be read; try again")
