"""Which queries a student is never trained on, so that it can be measured on an unseen collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.train.data.sources import TrainingSource

FILES, CLUSTERS = "files", "clusters"
"""Values of `--hold-out` besides a run: the files of `--queries` together, and clusters of queries of all sources."""

MIN_QUERIES = 50
"""Queries that a source must have to be held out by default: the mean of fewer says little."""

MAX_SHARE = 0.2
"""Largest share of all queries that is held out by default: training needs the others. A run that is searched with a
large file of further queries stays in training.
"""


@dataclass(frozen=True)
class HeldOut:
    """The held-out source.

    Attributes:
        source: `source` of its rows in `tower_queries`; empty: clusters of all sources.
        index: number of the run; 0 for files.
        name: the run's URL, `files` or `clusters`.
    """

    source: str
    index: int
    name: str

    @property
    def is_clusters(self) -> bool:
        """Whether clusters of queries are held out instead of a source."""
        return not self.source

    def trains_on(self, source: TrainingSource) -> bool:
        """Whether texts of a run may be trained on."""
        return self.source != "queries" or self.index != source.number


def choose_held_out(query_tables: Sequence[pa.Table], runs: Sequence[str], requested: str | None) -> HeldOut:
    """The requested source; else the smallest that is neither too small nor too large; else clusters of all sources.

    Args:
        query_tables: queries of each run, then of the files; column `test` marks test queries.
        runs: URLs of the runs.
        requested: a run, `files` or `clusters`; None: the default.

    Raises:
        SettingsError: there is no such source, it has no queries, several have the name, or it is the only one.
    """
    names = [*runs, FILES]
    sizes = {number: rows.num_rows - (pc.sum(rows["test"]).as_py() or 0) for number, rows in enumerate(query_tables)}
    usable = [number for number, size in sizes.items() if size]
    if requested is not None and requested != CLUSTERS:
        return _source(_find(requested, names, usable), names)
    max_size = MAX_SHARE * sum(sizes.values())
    candidates = [number for number in usable if MIN_QUERIES <= sizes[number] <= max_size]
    if requested == CLUSTERS or not candidates:
        return HeldOut("", 0, CLUSTERS)
    return _source(min(candidates, key=lambda number: (sizes[number], number)), names)


def _find(requested: str, names: Sequence[str], usable: Sequence[int]) -> int:
    """The number of the requested source: that of its exact name, else of the one whose path ends in it."""
    wanted = requested.rstrip("/")
    matches = [number for number, name in enumerate(names) if name == wanted] or [
        number for number, name in enumerate(names) if name.endswith("/" + wanted)
    ]
    if len(matches) > 1:
        several = ", ".join(names[number] for number in matches)
        raise SettingsError(f"--hold-out {requested} is ambiguous: {several}")
    if not set(matches) & set(usable) or len(usable) < 2:
        others = ", ".join([*(names[number] for number in usable if len(usable) > 1), CLUSTERS])
        raise SettingsError(
            f"--hold-out {requested}: it must have queries and leave others to train on; possible are {others}"
        )
    return matches[0]


def _source(number: int, names: Sequence[str]) -> HeldOut:
    is_files = number == len(names) - 1
    return HeldOut("file" if is_files else "queries", 0 if is_files else number, names[number])
