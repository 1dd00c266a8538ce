"""How a trial goes, in one line for whoever watches: the four curves of its learning, each with where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from darklode.pipeline.train.loop import Look

HEIGHTS = "▁▂▃▄▅▆▇█"

WIDTH = 16
"""Characters of a curve; of a longer one the latest looks."""


def told(looks: Sequence[Look]) -> str:
    """Loss, nDCG@10 on validation, share of negatives that the last mining replaced, and spread of query vectors.

    Args:
        looks: of a trial so far, at least one.
    """
    last = looks[-1]
    named: list[tuple[str, str, list[float | None]]] = [
        ("loss", "–" if last.loss is None else f"{last.loss:.3f}", [one.loss for one in looks]),
        ("validation", f"{last.validation:.4f}", [one.validation for one in looks]),
        ("replaced", "–" if last.replaced is None else f"{last.replaced:.0%}", [one.replaced for one in looks]),
        ("spread", f"{last.spread:.3f}", [one.spread for one in looks]),
    ]
    return ", ".join(f"{name} {value} {curve(values)}".rstrip() for name, value, values in named)


def curve(values: Sequence[float | None]) -> str:
    """The latest of the values that are known as bars, from their own least to their own most."""
    known = [one for one in values if one is not None][-WIDTH:]
    low, high = min(known, default=0.0), max(known, default=0.0)
    steps = (high - low) / (len(HEIGHTS) - 1)
    return "".join(HEIGHTS[round((one - low) / steps)] if steps > 0 else HEIGHTS[0] for one in known)
