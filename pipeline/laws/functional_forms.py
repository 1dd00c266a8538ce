"""Functional forms of a law: loss L as a function of labelled queries D, model parameters N, or both.

A form is fitted in *search coordinates*, not in its reported constants A, α, B, β and δ. They are, for each power term,
its *level* (log of the term at the mean log size) and its exponent, and last the floor δ, the loss that remains with
infinite data and parameters.

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

EXPONENT_BOUNDS = (0.02, 5.0)
"""Bounds of an exponent: below, a power is indistinguishable from a logarithm; above, only the product of exponent and
scale is identifiable.
"""

START_EXPONENTS = (0.1, 0.3, 0.6, 1.0, 2.0)
"""Starting values of an exponent."""

START_FLOORS = (0.0, 0.5, 0.9)
"""Starting values of the floor, as shares of the lowest observed value."""

OFFSET_SPAN = 5.0
"""Maximum distance of D0 from the observed sizes, in natural log units. Farther away, D0 changes nothing measurable (if
small) or makes the curve a straight line (if large).
"""


@dataclass(frozen=True)
class LawPoints:
    """Measured points of a law, or places without a measured loss. A *place* is a pair of size and parameters.

    Attributes:
        size: number of labelled queries D, shape (n,).
        parameters: number of model parameters N, shape (n,); NaN if unknown.
        value: measured loss, shape (n,); NaN at places. A fit needs losses above 0, because it takes their logs.
    """

    size: Doubles
    parameters: Doubles
    value: Doubles

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: NDArray[np.bool_]) -> LawPoints:
        """The points where the mask `rows`, shape (n,), is true."""
        return LawPoints(self.size[rows], self.parameters[rows], self.value[rows])

    def with_sizes(self, size: Doubles, parameters: Doubles) -> LawPoints:
        """Places with these sizes and parameters, without measured losses."""
        return LawPoints(size, parameters, np.full(len(size), np.nan))

    def with_values(self, value: Doubles) -> LawPoints:
        """The same places with other losses."""
        return LawPoints(self.size, self.parameters, value)


@dataclass(frozen=True)
class DataScale:
    """Reference scale of a form's search coordinates, computed from the points it is fitted to.

    Sizes are centered on their mean log, which makes a term's level and exponent nearly independent of each other.

    Attributes:
        size: mean log of the sizes above 0.
        parameters: mean log of the known parameters; 0 if none is known.
        low: log of the smallest size above 0.
        high: log of the largest size.
        least: the lowest loss: upper bound of the floor.
        middle: the median loss.
    """

    size: float
    parameters: float
    low: float
    high: float
    least: float
    middle: float

    @classmethod
    def from_points(cls, points: LawPoints) -> DataScale:
        """The scale of points, of which at least one must exist; a size of 0 has no log and is left out."""
        log_sizes = np.log(points.size[points.size > 0])
        if not len(log_sizes):
            log_sizes = np.zeros(1)
        known_parameters = points.parameters[~np.isnan(points.parameters)]
        return cls(
            size=float(log_sizes.mean()),
            parameters=float(np.log(known_parameters).mean()) if len(known_parameters) else 0.0,
            low=log_sizes.min(),
            high=log_sizes.max(),
            least=float(points.value.min()),
            middle=float(np.median(points.value)),
        )


@dataclass(frozen=True)
class FunctionalForm:
    """A functional form in search coordinates; the last coordinate is the floor δ.

    Attributes:
        name: the form's name in the tables.
        formula: the formula for people.
        constants: names of the reported constants, as many as coordinates.
        varies: columns of the points that must have at least two distinct values; empty for a constant.
        log: computes the log of the loss above the floor from (coordinates, scale, points), shape (n_points,).
        to_constants: computes the reported constants from (coordinates, scale).
        exponents: indices of the exponents, the same among coordinates and constants.
        start: computes lists of initial coordinates without the floor from (exponents, log of the median loss above the
            floor, scale).
        bounds: computes the lowest and the highest coordinates without the floor from a scale.
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
        """Number of constants, including the floor."""
        return len(self.constants)

    def log_value(self, at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
        """Log of the predicted loss, floor included, shape (n_points,).

        Args:
            at: search coordinates, shape (n_constants,).
            frame: scale of the points that the form is fitted to, not of `points`.
            points: where to predict; their losses are not read.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp(self.log(at, frame, points), np.log(at[-1])))

    def starts(self, frame: DataScale) -> Doubles:
        """Initial coordinates, shape (n_starts, n_constants): all combinations of floors and exponents."""
        # A form with two exponents takes every other starting value of each.
        exponent_values = START_EXPONENTS[:: max(len(self.exponents), 1)]
        initial_coordinates = [
            [*coordinates, frame.least * floor_share]
            for floor_share in START_FLOORS
            for exponents in product(exponent_values, repeat=len(self.exponents))
            for coordinates in self.start(exponents, np.log(frame.middle - frame.least * floor_share), frame)
        ]
        low, high = self.limits(frame)
        return np.asarray(np.clip(np.array(initial_coordinates), low, high))

    def limits(self, frame: DataScale) -> tuple[Doubles, Doubles]:
        """Lowest and highest coordinates, each of shape (n_constants,).

        A floor is at most the lowest loss. The constant form is its floor, so its bound leaves room above the median.
        """
        low, high = self.bounds(frame)
        max_floor = frame.least if self.varies else 2 * frame.middle
        return np.array([*low, 0.0]), np.array([*high, max_floor])

    def bounds_hit(self, at: Doubles, frame: DataScale) -> list[str]:
        """A message for each bound that a fit has hit; such a fit is degenerate: its constants mean nothing.

        Args:
            at: coordinates of the fit.
            frame: scale of the fitted points.
        """
        constants = dict(zip(self.constants, self.to_constants(at, frame), strict=True))
        messages = []
        for index in self.exponents:
            name = self.constants[index]
            if at[index] > 0.99 * EXPONENT_BOUNDS[1]:
                scale = _SCALE_BY_EXPONENT[name]
                product_of_both = constants[name] * constants[scale]
                messages.append(format.exponent_at_upper_bound(name, EXPONENT_BOUNDS[1], scale, product_of_both))
            elif at[index] < 1.01 * EXPONENT_BOUNDS[0]:
                messages.append(format.exponent_at_lower_bound(name, EXPONENT_BOUNDS[0]))
        if "D0" in constants and constants["D0"] > 0.99 * np.exp(frame.high + OFFSET_SPAN):
            messages.append(format.offset_at_bound(constants["D0"]))
        return messages


_SCALE_BY_EXPONENT = {"alpha": "A", "beta": "B"}
"""The scale constant that belongs to each exponent: (A/N)^α and (B/D)^β."""


def _power(column: str, at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
    """Log of a single power term in a column; coordinates: level, exponent, floor."""
    level, exponent = at[0], at[1]
    with np.errstate(divide="ignore"):
        log_column = np.log(getattr(points, column))
        return np.asarray(level - exponent * (log_column - getattr(frame, column)))


def _power_constants(column: str, at: Doubles, frame: DataScale) -> Doubles:
    """Scale (A or B), exponent and floor of a single power term."""
    level, exponent, floor = at[0], at[1], at[2]
    return np.array([np.exp(level / exponent + getattr(frame, column)), exponent, floor])


def _offset_log(at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
    """Log of (B/(D + D₀))^β; coordinates: level, exponent, log D₀, floor."""
    level, exponent, log_offset = at[0], at[1], at[2]
    log_distance = np.logaddexp(_log(points.size), log_offset) - np.logaddexp(frame.size, log_offset)
    return np.asarray(level - exponent * log_distance)


def _offset_constants(at: Doubles, frame: DataScale) -> Doubles:
    """B, β, D₀ and δ of `SIZE_WITH_OFFSET`."""
    level, exponent, log_offset, floor = at[0], at[1], at[2], at[3]
    scale = np.exp(level / exponent + np.logaddexp(frame.size, log_offset))
    return np.array([scale, exponent, np.exp(log_offset), floor])


def _log(size: Doubles) -> Doubles:
    """Log of sizes; −inf at 0, without a warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(size))


def _log_terms(at: Doubles, frame: DataScale, points: LawPoints) -> tuple[Doubles, Doubles]:
    """Logs of (A/N)^α and (B/D)^β; coordinates: level and α of N, level and β of D, floor."""
    parameters_level, alpha, size_level, beta = at[0], at[1], at[2], at[3]
    parameters_term = np.asarray(parameters_level - alpha * (np.log(points.parameters) - frame.parameters))
    size_term = np.asarray(size_level - beta * (_log(points.size) - frame.size))
    return parameters_term, size_term


def _joint(at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
    """Log of [(A/N)^(α/β) + B/D]^β: the terms are added after taking the β-th root."""
    beta = at[3]
    parameters_term, size_term = _log_terms(at, frame, points)
    return np.asarray(beta * np.logaddexp(parameters_term / beta, size_term / beta))


def _additive(at: Doubles, frame: DataScale, points: LawPoints) -> Doubles:
    """Log of (A/N)^α + (B/D)^β."""
    return np.logaddexp(*_log_terms(at, frame, points))


def _two_term_constants(at: Doubles, frame: DataScale) -> Doubles:
    """A, α, B, β and δ of `JOINT` and `ADDITIVE`."""
    parameters_level, alpha, size_level, beta, floor = at[0], at[1], at[2], at[3], at[4]
    parameters_scale = np.exp(parameters_level / alpha + frame.parameters)
    size_scale = np.exp(size_level / beta + frame.size)
    return np.array([parameters_scale, alpha, size_scale, beta, floor])


def _two_term_starts(exponents: tuple[float, ...], level: float, _: DataScale) -> list[list[float]]:
    """Initial coordinates that split the loss above the floor between the terms: equally, or 1 to 9 either way."""
    term_shares = ((0.5, 0.5), (0.1, 0.9), (0.9, 0.1))
    return [
        [
            level + float(np.log(parameters_share)),
            exponents[0],
            level + float(np.log(size_share)),
            exponents[1],
        ]
        for parameters_share, size_share in term_shares
    ]


_LEVEL_BOUNDS = (-40.0, 40.0)
"""Bounds of a level, which is the log of a loss."""


def _single_term(column: str, name: str, scale: str, exponent: str) -> FunctionalForm:
    """The form (scale/column)^exponent + δ.

    Args:
        column: `size` or `parameters`.
        name: the form's name in the tables.
        scale: name of the scale constant, A or B.
        exponent: name of the exponent, alpha or beta.
    """
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
        lambda _: ([_LEVEL_BOUNDS[0], EXPONENT_BOUNDS[0]], [_LEVEL_BOUNDS[1], EXPONENT_BOUNDS[1]]),
    )


SIZE = _single_term("size", "size", "B", "beta")
"""Law of labelled queries (Scaling Laws for Dense Retrieval, Eq. 8)."""

PARAMETERS = _single_term("parameters", "parameters", "A", "alpha")
"""Law of model parameters (Scaling Laws for Dense Retrieval, Eq. 7)."""

SIZE_WITH_OFFSET = FunctionalForm(
    "size, begun",
    "L = (B/(D + D₀))^β + δ",
    ("B", "beta", "D0", "delta"),
    ("size",),
    _offset_log,
    _offset_constants,
    (1,),
    lambda exponents, level, frame: [
        [level, exponents[0], log_offset]
        for log_offset in (frame.low - 1, (frame.low + frame.high) / 2, frame.high + 1)
    ],
    lambda frame: (
        [_LEVEL_BOUNDS[0], EXPONENT_BOUNDS[0], frame.low - OFFSET_SPAN],
        [_LEVEL_BOUNDS[1], EXPONENT_BOUNDS[1], frame.high + OFFSET_SPAN],
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
    _two_term_constants,
    (1, 3),
    _two_term_starts,
    lambda _: ([_LEVEL_BOUNDS[0], EXPONENT_BOUNDS[0]] * 2, [_LEVEL_BOUNDS[1], EXPONENT_BOUNDS[1]] * 2),
)
"""Law of both (Scaling Laws for Dense Retrieval, Eq. 9)."""

ADDITIVE = FunctionalForm(
    "additive",
    "L = (A/N)^α + (B/D)^β + δ",
    JOINT.constants,
    JOINT.varies,
    _additive,
    _two_term_constants,
    (1, 3),
    _two_term_starts,
    JOINT.bounds,
)
"""Law of both as a sum of two terms (Hoffmann et al. 2022, Eq. 2)."""

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

FORMS = {form.name: form for form in (SIZE, PARAMETERS, SIZE_WITH_OFFSET, JOINT, ADDITIVE, CONSTANT)}
"""All forms by name, to rebuild a fit from a table."""


def fitting_forms(points: LawPoints) -> list[FunctionalForm]:
    """Forms that can be fitted to these points.

    Forms of N need known parameters at all points and at least two models. Among forms of D only, points of size 0
    allow `SIZE_WITH_OFFSET` alone, because the loss of `SIZE` is infinite there.
    """
    sizes = np.unique(points.size)
    model_sizes = np.unique(points.parameters[~np.isnan(points.parameters)])
    if len(model_sizes) > 1 and not np.isnan(points.parameters).any():
        return [JOINT, ADDITIVE] if len(sizes) > 1 else [PARAMETERS]
    has_size_0 = not sizes.all()
    return [SIZE_WITH_OFFSET] if has_size_0 else [SIZE, SIZE_WITH_OFFSET]
