"""One-line training progress, for `adapt` with sparklines."""

from __future__ import annotations

from collections.abc import Sequence

from darklode.pipeline.train.fit.eval_point import EvalPoint

BARS = "▁▂▃▄▅▆▇█"

MAX_BARS = 16
"""Maximum number of characters of a sparkline; the latest points are shown."""


def format_history(points: Sequence[EvalPoint]) -> str:
    """Loss, validation nDCG@10, share of replaced negatives, and spread of query vectors.

    Args:
        points: evaluations so far, at least one.
    """
    latest = points[-1]
    lines: list[tuple[str, str, list[float | None]]] = [
        ("loss", format_loss(latest.loss, 3), [point.loss for point in points]),
        ("validation", f"{latest.validation:.4f}", [point.validation for point in points]),
        (
            "replaced",
            "–" if latest.replaced is None else f"{latest.replaced:.0%}",
            [point.replaced for point in points],
        ),
        ("spread", f"{latest.spread:.3f}", [point.spread for point in points]),
    ]
    return ", ".join(f"{name} {value} {sparkline(values)}".rstrip() for name, value, values in lines)


def sparkline(values: Sequence[float | None]) -> str:
    """The latest known values as bars between their minimum and maximum."""
    values_shown = [value for value in values if value is not None][-MAX_BARS:]
    low, high = min(values_shown, default=0.0), max(values_shown, default=0.0)
    steps = (high - low) / (len(BARS) - 1)
    return "".join(BARS[round((value - low) / steps)] if steps > 0 else BARS[0] for value in values_shown)


def format_loss(loss: float | None, digits: int) -> str:
    """Format a loss; it is unknown before the first step."""
    return "–" if loss is None else f"{loss:.{digits}f}"
