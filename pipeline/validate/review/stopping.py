"""When a review is precise enough: the 95 % interval that its labels give so far."""

from __future__ import annotations

from typing import Protocol

import numpy as np

DEFAULT_HALF_WIDTH = 0.05
LABELS_PER_UPDATE = 10
"""The interval is computed after this many new labels; single labels hardly change it."""


class ReviewFigure(Protocol):
    """A figure that the review estimates."""

    @property
    def name(self) -> str:
        """What it is."""
        ...

    def half_width(self, labels: dict[str, float]) -> float:
        """Half of its 95 % interval; NaN with too few labels.

        Args:
            labels: 1 or 0 of each labelled pair, by its name.
        """
        ...


class StoppingRule:
    """Says how precise a review is, and whether it may stop.

    Args:
        figure: what the review estimates; None: nothing.
        until: half width of the interval that is precise enough.
    """

    def __init__(self, figure: ReviewFigure | None, until: float = DEFAULT_HALF_WIDTH) -> None:
        self._figure = figure
        self._until = until
        self._n_used = -1
        self._sentence = ""

    def sentence(self, labels: dict[str, float]) -> str:
        """The interval's half width and whether to stop; empty if nothing is estimated."""
        if self._figure is None:
            return ""
        n_used = len(labels) // LABELS_PER_UPDATE
        if n_used != self._n_used:
            self._n_used, self._sentence = n_used, self._describe(self._figure, labels)
        return self._sentence

    def _describe(self, figure: ReviewFigure, labels: dict[str, float]) -> str:
        half_width = figure.half_width(labels)
        goal = _format(self._until)
        if np.isnan(half_width):
            return f"{figure.name}: too few labels for an interval; goal ± {goal}"
        if half_width <= self._until:
            return f"{figure.name}: ± {goal} reached (± {_format(half_width)}), you can stop"
        return f"{figure.name}: ± {_format(half_width)}, goal ± {goal}"


def _format(half_width: float) -> str:
    """Two decimals, rounded up: .051 is not .05."""
    return f"{np.ceil(half_width * 1000 - 1e-9) / 1000:.3f}".rstrip("0").removeprefix("0")
