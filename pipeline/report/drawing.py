"""What can be drawn, and from numbers to places: these are percent of an axis, so that a drawing fits any width."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

from darklode.pipeline.base.highlighting import Piece, TextBlock
from darklode.pipeline.report.formatting import brief


@dataclass(frozen=True)
class Bar:
    """A horizontal bar. `tone` names a colour: a, b, c, d, or faint."""

    start: float
    length: float
    tone: str
    tip: str


@dataclass(frozen=True)
class Column:
    """An upright bar of a histogram; `bottom` and `top` are percent of the row's height."""

    start: float
    length: float
    top: float
    tone: str
    tip: str
    bottom: float = 0.0


@dataclass(frozen=True)
class Dot:
    """An estimate with its interval."""

    at: float
    low: float
    high: float
    tone: str
    tip: str


Mark = Bar | Column | Dot


@dataclass(frozen=True)
class Row:
    """Marks beside a label.

    Attributes:
        label: what the row is.
        marks: drawn in this order.
        value: the number in short.
        note: a line below the marks.
        group: a heading above the row.
    """

    label: str
    marks: Sequence[Mark] = ()
    value: str = ""
    note: str = ""
    group: str = ""


@dataclass(frozen=True)
class Rule:
    """A line across all rows, such as a threshold."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """What is along the rows: a title, and ticks by place."""

    title: str = ""
    ticks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Chart:
    """Rows above one axis; `height` is that of a row in pixels, `legend` names the tones, `note` what is left out."""

    rows: Sequence[Row]
    axis: Axis
    height: int = 18
    title: str = ""
    legend: Sequence[tuple[str, str]] = ()
    rules: Sequence[Rule] = ()
    note: str = ""
    kind: str = "chart"


@dataclass(frozen=True)
class MatrixCell:
    """A cell of a matrix; `depth` is 0 to 9, the darkest, or none where nothing is known."""

    text: str
    depth: int | None
    tip: str


@dataclass(frozen=True)
class Matrix:
    """A square of values, with the same names along both sides."""

    names: Sequence[str]
    rows: Sequence[Sequence[MatrixCell]]
    kind: str = "matrix"


@dataclass(frozen=True)
class ScatterPoint:
    """An estimate with its interval in a square; all in percent, upwards and to the right."""

    x: float
    y: float
    low: float
    high: float
    tip: str


@dataclass(frozen=True)
class Square:
    """Points between two axes with the same ticks, by place, and the diagonal."""

    points: Sequence[ScatterPoint]
    ticks: Sequence[tuple[float, str]]
    across: str
    upward: str
    title: str = ""
    kind: str = "square"


@dataclass(frozen=True)
class CurvePoint:
    """A value along a curve, in percent to the right and upwards; `is_chosen`: it is the one that counts."""

    x: float
    y: float
    tip: str
    is_chosen: bool = False


@dataclass(frozen=True)
class CurveLine:
    """Values in their order: joined by a line with dots, the line alone, dots alone, stars, or a band's outline."""

    points: Sequence[CurvePoint]
    tone: str
    shape: Literal["joined", "line", "dots", "stars", "band"] = "joined"


@dataclass(frozen=True)
class Curves:
    """Curves above one axis, beside another; `legend` names the tones."""

    curves: Sequence[CurveLine]
    across: Axis
    upward: Axis
    title: str
    legend: Sequence[tuple[str, str]] = ()
    kind: str = "curves"


@dataclass(frozen=True)
class Multiples:
    """Small drawings of one kind side by side, such as one a tenant; they share a scale. `note` is what is left out."""

    drawings: Sequence[Chart | Square]
    title: str = ""
    note: str = ""
    kind: str = "multiples"


@dataclass(frozen=True)
class Facts:
    """A few named numbers."""

    pairs: Sequence[tuple[str, str]]
    kind: str = "facts"


@dataclass(frozen=True)
class Text:
    """A text from outside.

    Attributes:
        clipped: its beginning, or what stands around the first of the query's terms.
        full_blocks: all of it, none where that is the same.
        role: what it is (positive, negative).
        note: what is known of it.
        heading_pieces: its document's title and its heading there, as far as they are known.
        document: its document's id, which is its file where it came from one.
    """

    clipped: Sequence[TextBlock]
    full_blocks: Sequence[TextBlock] = ()
    role: str = ""
    note: str = ""
    heading_pieces: Sequence[Sequence[Piece]] = ()
    document: str = ""


@dataclass(frozen=True)
class Quote:
    """A query with the texts that belong to it: the first ones at once, the others on demand."""

    head: str
    tags: Sequence[str]
    texts: Sequence[Text]
    more: Sequence[Text] = ()


@dataclass(frozen=True)
class Quotes:
    """Quotations, one after the other."""

    quotes: Sequence[Quote]
    kind: str = "quotes"


Drawing = Chart | Matrix | Square | Curves | Multiples | Facts | Quotes


@dataclass(frozen=True)
class AxisScale:
    """Numbers from `low` to `high`, along an axis."""

    low: float
    high: float

    @classmethod
    def up_to(cls, high: float) -> "AxisScale":
        """From 0 to a round number, at least `high`."""
        step = round_up_nicely(high / 4)
        return cls(0, max(step, ceil(round(high / step, 6)) * step))

    @classmethod
    def including(cls, low: float, high: float, least: float) -> "AxisScale":
        """Round numbers around both ends, at least so far from one another; below 0 only where an end is."""
        step = round_up_nicely(max(high - low, least) / 4)
        first, last = floor(round(low / step, 6)), ceil(round(high / step, 6))
        few = max(1, ceil(round(least / step, 6)))
        first = min(first, last - few if first < 0 else max(last - few, 0))
        return cls(round(first * step, 9), round(max(last, first + few) * step, 9))

    def position_of(self, value: float) -> float:
        """Percent of the way, never outside."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return round(100 * min(1.0, max(0.0, share)), 2)

    def span(self, low: float, high: float) -> float:
        """Percent between two numbers."""
        return round(self.position_of(high) - self.position_of(low), 2)

    def axis(self, title: str, max_ticks: int = 5) -> Axis:
        """The axis with round ticks, at most so many."""
        step = round_up_nicely((self.high - self.low) / max_ticks)
        first, last = ceil(round(self.low / step, 6)), floor(round(self.high / step, 6))
        ticks = [round(number * step, 9) for number in range(first, last + 1)]
        return Axis(title, [(self.position_of(tick), brief(tick, self.high)) for tick in ticks])


def round_up_nicely(value: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below the value; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if round(step * power, 12) >= round(value, 12))


def whole_step(value: float) -> int:
    """The same, never below 1."""
    return max(1, int(round_up_nicely(value)))
