"""An index of verdicts that grows: which one stands for each pair, and where it lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders.keys import KeyIndex, Keys

_Ints = NDArray[np.int64]
_NOTHING = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Level:
    """Verdicts, one for each key, numbered from 0: 36 bytes each.

    Attributes:
        index: finds a key's number.
        precedence: by number; of several verdicts on one pair the largest stands.
        places: by number, where the verdict lies.
    """

    index: KeyIndex
    precedence: _Ints
    places: _Ints

    @classmethod
    def of(cls, keys: Keys, precedence: _Ints, places: _Ints) -> Level:
        """The verdicts that stand; of equals the first."""
        if (precedence[1:] > precedence[:-1]).any():
            order = np.argsort(-precedence, kind="stable")
            keys, precedence, places = keys[order], precedence[order], places[order]
        index = KeyIndex(keys)
        repeats = index.repeats()
        if len(repeats):
            index = KeyIndex(np.delete(keys, repeats, axis=0))
            precedence, places = np.delete(precedence, repeats), np.delete(places, repeats)
        return cls(index, precedence, places)

    def over(self, older: Level) -> Level:
        """Both in one; of equals this level's."""
        return Level.of(
            np.concatenate([self.index.keys(), older.index.keys()]),
            np.concatenate([self.precedence, older.precedence]),
            np.concatenate([self.places, older.places]),
        )


class Levels:
    """Levels of growing size; adding n verdicts bit by bit costs O(n log n) in all."""

    def __init__(self) -> None:
        self._levels: list[Level] = []

    def __iter__(self) -> Iterator[Level]:
        return iter(self._levels)

    def add(self, level: Level) -> None:
        """Put a level on top; small ones below it are merged into it."""
        while self._levels and len(self._levels[-1].places) <= 2 * len(level.places):
            level = level.over(self._levels.pop())
        self._levels.append(level)

    def merge(self) -> None:
        """Make them one, so that each key is there once."""
        while len(self._levels) > 1:
            top = self._levels.pop()
            self._levels.append(top.over(self._levels.pop()))

    def find(self, keys: Keys) -> _Ints:
        """Where each key's verdict lies, -1 where there is none."""
        best, places = np.full(len(keys), _NOTHING), np.full(len(keys), -1, dtype=np.int64)
        for level in reversed(self._levels):
            number = level.index.find(keys)
            rows = np.flatnonzero(number >= 0)
            rows = rows[level.precedence[number[rows]] > best[rows]]
            best[rows], places[rows] = level.precedence[number[rows]], level.places[number[rows]]
        return places
