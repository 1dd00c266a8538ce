"""Functional forms of a law: loss as a function of labelled queries D, parameters N, or both.

Sources: Scaling Laws for Dense Retrieval, Eq. 7 to 9; Chinchilla's additive form (Hoffmann et al. 2022, Eq. 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.laws import format

EXPONENTS = (0.02, 5.0)
"""Bounds of an exponent: below, a power is indistinguishable from a logarithm; above, only the product of exponent and
scale is identifiable.
"""

STARTS = (0.1, 0.3, 0.6, 1.0, 2.0)
FLOORS = (0.0, 0.5, 0.9)
"""Starting values of the floor, as shares of the lowest observed value."""

OFFSET_SPAN = 5.0
"""Maximum distance of D0 from the observed sizes, in natural log units."""


@dataclass(frozen=True)
class LawPoints:
    """Measured points.

    Attributes:
        size: labelled queries, shape (n,).
        parameters: shape (n,); NaN if unknown.
        value: loss above 0, shape (n,).
    """

    size: Doubles
    parameters: Doubles
    value: Doubles

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: NDArray[np.bool_]) -> LawPoints:
        return LawPoints(self.size[rows], self.parameters[rows], self.value[rows])

    def with_sizes(self, size: Doubles, parameters: Doubles) -> LawPoints:
        """Places without values."""
        return LawPoints(size, parameters, np.full(len(size), np.nan))

    def with_values(self, value: Doubles) -> LawPoints:
        """The same places with other values."""
        return LawPoints(self.size, self.parameters, value)


@dataclass(frozen=True)
class DataScale:
    """Reference scale of a form's coordinates; centering makes them nearly independent of each other.

    Attributes:
        size: mean log of the sizes above 0.
        parameters: mean log of the parameters.
        low: log of the smallest size above 0.
        high: log of the largest size.
        least: the lowest value.
        middle: the median value.
    """

    size: float
    parameters: float
    low: float
    high: float
    least: float
    middle: float

    @classmethod
    def from_points(cls, points: LawPoints) -> DataScale:
        log_sizes, least = np.log(points.size[points.size > 0]), float(points.value.min())
        n_parameters = points.parameters[~np.isnan(points.parameters)]
        mean = float(np.log(n_parameters).mean()) if len(n_parameters) else 0.0
        some = log_sizes if len(log_sizes) else np.zeros(1)
        return cls(float(some.mean()), mean, some.min(), some.max(), least, float(np.median(points.value)))


@dataclass(frozen=True)
class FunctionalForm:
    """A functional form in search coordinates; the last coordinate is the floor δ.

    Attributes:
        name: in the tables.
        formula: for people.
        constants: names of the reported constants.
        varies: columns that need at least two distinct values.
        log: log of the loss above the floor, from coordinates, scale and points.
        to_constants: reported constants from coordinates.
        exponents: indices of the exponents among the coordinates.
        start: initial coordinates without the floor, for an exponent and the loss above the floor at the middle.
        bounds: lowest and highest coordinates without the floor.
    """

    name: str
    formula: str
    constants: tuple[str, ...]
    varies: tuple[str, ...]
    log: Callable[[Doubles, DataScale, LawPoints], Doubles]
    to_constants: Callable[[Doubles, DataScale], Doubles]
    exponents: tuple[int, ...]
    start: Callable[[tuple[float, ...], float, DataScale], list[list[float]]]
    bounds: Callable[[DataScale], tuple[list[float], list[float]]]

    @property
    def count(self) -> int:
        """Number of constants."""
        return len(self.constants)

    def log_value(self, at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
        """Log of the loss at points."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp(self.log(at, frame, points), np.log(at[-1])))

    def starts(self, frame: DataScale) -> Doubles:
        """Initial coordinates, shape (n_starts, n_constants)."""
        starting_points = [
            [*start_point, frame.least * floor]
            for floor in FLOORS
            for exponents in product(STARTS[:: max(len(self.exponents), 1)], repeat=len(self.exponents))
            for start_point in self.start(exponents, np.log(frame.middle - frame.least * floor), frame)
        ]
        low, high = self.limits(frame)
        return np.asarray(np.clip(np.array(starting_points), low, high))

    def limits(self, frame: DataScale) -> tuple[Doubles, Doubles]:
        """Lowest and highest coordinates."""
        low, high = self.bounds(frame)
        max_floor = frame.least if self.varies else 2 * frame.middle
        return np.array([*low, 0.0]), np.array([*high, max_floor])

    def bounds_hit(self, at: Doubles, frame: DataScale) -> list[str]:
        """Which bounds a fit has hit, and what that means: such a fit is degenerate."""
        constants = dict(zip(self.constants, self.to_constants(at, frame), strict=True))
        messages = []
        for index in self.exponents:
            name = self.constants[index]
            if at[index] > 0.99 * EXPONENTS[1]:
                scale = _SCALES[name]
                product_of_both = constants[name] * constants[scale]
                messages.append(format.exponent_at_upper_bound(name, EXPONENTS[1], scale, product_of_both))
            elif at[index] < 1.01 * EXPONENTS[0]:
                messages.append(format.exponent_at_lower_bound(name, EXPONENTS[0]))
        if "D0" in constants and constants["D0"] > 0.99 * np.exp(frame.high + OFFSET_SPAN):
            messages.append(format.offset_at_bound(constants["D0"]))
        return messages


_SCALES = {"alpha": "A", "beta": "B"}


def _power(column: str, at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
    with np.errstate(divide="ignore"):
        return np.asarray(at[0] - at[1] * (np.log(getattr(points, column)) - getattr(frame, column)))


def _power_constants(column: str, at: Doubles, frame: DataScale) -> Doubles:
    return np.array([np.exp(at[0] / at[1] + getattr(frame, column)), at[1], at[2]])


def _started_log(at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
    return np.asarray(at[0] - at[1] * (np.logaddexp(_log(points.size), at[2]) - np.logaddexp(frame.size, at[2])))


def _started_constants(at: Doubles, frame: DataScale) -> Doubles:
    scale = np.exp(at[0] / at[1] + np.logaddexp(frame.size, at[2]))
    return np.array([scale, at[1], np.exp(at[2]), at[3]])


def _log(size: Doubles) -> Doubles:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(size))


def _terms(at: Doubles, frame: DataScale, points: LawPoints) -> tuple[Doubles, Doubles]:
    """Logs of (A/N)^α and (B/D)^β."""
    return (
        np.asarray(at[0] - at[1] * (np.log(points.parameters) - frame.parameters)),
        np.asarray(at[2] - at[3] * (_log(points.size) - frame.size)),
    )


def _joint(at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
    ofn, ofd = _terms(at, frame, points)
    return np.asarray(at[3] * np.logaddexp(ofn / at[3], ofd / at[3]))


def _additive(at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
    return np.logaddexp(*_terms(at, frame, points))


def _both_constants(at: Doubles, frame: DataScale) -> Doubles:
    scales = np.exp(at[0] / at[1] + frame.parameters), np.exp(at[2] / at[3] + frame.size)
    return np.array([scales[0], at[1], scales[1], at[3], at[4]])


def _two_term_starts(exponents: tuple[float, ...], level: float, _: DataScale) -> list[list[float]]:
    """Starts with both terms equal, or one of them small."""
    shares = ((0.5, 0.5), (0.1, 0.9), (0.9, 0.1))
    return [
        [level + float(np.log(own_half)), exponents[0], level + float(np.log(other)), exponents[1]]
        for own_half, other in shares
    ]


_LEVEL = (-40.0, 40.0)


def _single_term(column: str, name: str, scale: str, exponent: str) -> FunctionalForm:
    symbol = {"size": "D", "parameters": "N"}[column]
    greek = {"alpha": "α", "beta": "β"}[exponent]
    return FunctionalForm(
        name,
        f"L = ({scale}/{symbol})^{greek} + δ",
        (scale, exponent, "delta"),
        (column,),
        lambda at, frame, points: _power(column, at, frame, points),
        lambda at, frame: _power_constants(column, at, frame),
        (1,),
        lambda exponents, level, _: [[level, exponents[0]]],
        lambda _: ([_LEVEL[0], EXPONENTS[0]], [_LEVEL[1], EXPONENTS[1]]),
    )


SIZE = _single_term("size", "size", "B", "beta")
"""Eq. 8."""

PARAMETERS = _single_term("parameters", "parameters", "A", "alpha")
"""Eq. 7."""

STARTED = FunctionalForm(
    "size, begun",
    "L = (B/(D + D₀))^β + δ",
    ("B", "beta", "D0", "delta"),
    ("size",),
    _started_log,
    _started_constants,
    (1,),
    lambda exponents, level, frame: [
        [level, exponents[0], at] for at in (frame.low - 1, (frame.low + frame.high) / 2, frame.high + 1)
    ],
    lambda frame: (
        [_LEVEL[0], EXPONENTS[0], frame.low - OFFSET_SPAN],
        [_LEVEL[1], EXPONENTS[1], frame.high + OFFSET_SPAN],
    ),
)
"""For a pretrained encoder: D₀ is what its pretraining is worth in labels. Eq. 8 is infinite at D = 0, but such an
encoder's loss is not.
"""

JOINT = FunctionalForm(
    "joint",
    "L = [(A/N)^(α/β) + B/D]^β + δ",
    ("A", "alpha", "B", "beta", "delta"),
    ("size", "parameters"),
    _joint,
    _both_constants,
    (1, 3),
    _two_term_starts,
    lambda _: ([_LEVEL[0], EXPONENTS[0]] * 2, [_LEVEL[1], EXPONENTS[1]] * 2),
)
"""Eq. 9."""

ADDITIVE = FunctionalForm(
    "additive",
    "L = (A/N)^α + (B/D)^β + δ",
    JOINT.constants,
    JOINT.varies,
    _additive,
    _both_constants,
    (1, 3),
    _two_term_starts,
    JOINT.bounds,
)

CONSTANT = FunctionalForm(
    "constant",
    "L = δ",
    ("delta",),
    (),
    lambda _at, _frame, points: np.full(len(points), -np.inf),
    lambda at, _: at,
    (),
    lambda *_: [[]],
    lambda _: ([], []),
)
"""The baseline that a law has to beat."""

FORMS = {form.name: form for form in (SIZE, PARAMETERS, STARTED, JOINT, ADDITIVE, CONSTANT)}


def fitting_forms(points: LawPoints) -> list[FunctionalForm]:
    """Forms that can be fitted to these points, given which columns vary.

    A size of 0 is allowed by `STARTED` only, so that no other form is compared on points it cannot describe.
    """
    sizes, models = np.unique(points.size), np.unique(points.parameters[~np.isnan(points.parameters)])
    if len(models) > 1 and not np.isnan(points.parameters).any():
        return [JOINT, ADDITIVE] if len(sizes) > 1 else [PARAMETERS]
    return [STARTED] if not sizes.all() else [SIZE, STARTED]
