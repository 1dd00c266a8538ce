"""Estimates with their intervals, one below the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.report.drawing import Chart, Dot, Row
from pipeline.report.scale import Scale

LEAST_SPAN = 0.02


@dataclass(frozen=True)
class Estimate:
    """A number between 0 and 1 with its interval, and what it is of; `group` heads those that belong together."""

    label: str
    middle: float
    low: float
    high: float
    of: str
    group: str = ""


def whiskers(estimates: Sequence[Estimate], title: str, tone: str, note: str = "") -> Chart:
    """A row for each estimate, on one axis that need not begin at 0."""
    scale = Scale.around(min(one.low for one in estimates), max(one.high for one in estimates), LEAST_SPAN)
    decimals = 4 if scale.high - scale.low < 0.05 else 3
    groups = [None, *(one.group for one in estimates)]
    rows = [
        Row(
            one.label,
            [Dot(scale.at(one.middle), scale.at(one.low), scale.at(one.high), tone, _tip(one))],
            f"{one.middle:.{decimals}f}",
            group=one.group if one.group != before else "",
        )
        for before, one in zip(groups, estimates, strict=False)
    ]
    return Chart(rows, scale.axis("", 4), title=title, note=note)


def _tip(one: Estimate) -> str:
    return f"{one.middle:.4f}, 95 % interval {one.low:.4f} to {one.high:.4f}, {one.of}"
