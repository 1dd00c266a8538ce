"""Export formats, one file each: the required tables and the function that writes the format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """An export format.

    Attributes:
        tables: required tables; it cannot read others.
        write: writes the format into an empty folder; raises ExportError if there is nothing to write.
        test_labels: whether it contains labels of the test split, which can be withheld.
        options: keyword arguments of `write` that a user may set, such as `level`.
    """

    tables: tuple[str, ...]
    write: Callable[..., None]
    test_labels: bool = False
    options: tuple[str, ...] = ()
