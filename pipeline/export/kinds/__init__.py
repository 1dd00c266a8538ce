"""Formats of other tools, a file each: what a format is made of, and the function that writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from darklode.pipeline.base.artifacts import Tables


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        tables: what it is made of; it sees no others.
        write: writes it into an empty folder; raises ExportError where the tables give nothing to write.
        test_labels: whether it holds labels of the test split, so that these can be withheld.
    """

    tables: tuple[str, ...]
    write: Callable[[Tables, Path], None]
    test_labels: bool = False
