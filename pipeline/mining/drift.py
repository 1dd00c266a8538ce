"""Whether the newest day of the log looks like those before it."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pyarrow as pa

WATCHED = ("exposures", "clicks", "queries", "new_queries", "click_one_hop")
NIGHTS = 7
LEAST_NIGHTS = 3


@dataclass(frozen=True)
class Drift:
    """How far one number of the newest day lies from its mean over up to seven days before; change is relative."""

    date: str
    measure: str
    value: int
    mean: float
    change: float

    def __str__(self) -> str:
        return f"{self.measure} {self.value:,} against {self.mean:,.1f} ({self.change:+.0%})"


def drift(nights: pa.Table) -> list[Drift]:
    """Compare the newest day with the seven before it; nothing is said before there are three.

    Args:
        nights: `statistics.nights`, in order of the days.
    """
    rows: list[dict[str, Any]] = nights.to_pylist()
    newest, before = rows[-1:], rows[-1 - NIGHTS : -1]
    if len(before) < LEAST_NIGHTS:
        return []
    means = {measure: fmean(row[measure] for row in before) for measure in WATCHED}
    return [
        Drift(str(row["date"]), measure, row[measure], mean, row[measure] / mean - 1)
        for row in newest
        for measure, mean in means.items()
        if mean
    ]
