"""Export formats, one file each: the required tables and the function that writes the format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from darklode.pipeline.base.artifacts import Tables


@dataclass(frozen=True)
class Format:
    """An export format.

    Attributes:
        tables: required tables; it cannot read others.
        write: writes the format into an empty folder; raises ExportError if there is nothing to write.
        test_labels: whether it contains labels of the test split, which can be withheld.
    """

    tables: tuple[str, ...]
    write: Callable[[Tables, Path], None]
    test_labels: bool = False
