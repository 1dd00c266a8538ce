"""Drawing primitives; positions are percent of an axis so that drawings fit any width."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

from darklode.pipeline.base.highlighting import Piece, TextBlock
from darklode.pipeline.report.formatting import brief


@dataclass(frozen=True)
class Bar:
    """A horizontal bar; `tone` is a colour class: a, b, c, d or faint."""

    start: float
    length: float
    tone: str
    tip: str


@dataclass(frozen=True)
class Column:
    """A vertical bar of a histogram; `bottom` and `top` are percent of the row's height."""

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
    """A label, marks and a value.

    Attributes:
        marks: drawn in this order.
        value: text beside the marks.
        note: line below the marks.
        group: heading above the row.
    """

    label: str
    marks: Sequence[Mark] = ()
    value: str = ""
    note: str = ""
    group: str = ""


@dataclass(frozen=True)
class Rule:
    """A vertical line across all rows, e.g. a threshold."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """An axis with a title, and ticks as (position, label)."""

    title: str = ""
    ticks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Chart:
    """Rows above a common axis; `height` is pixels per row, `legend` is (tone, label) pairs, `note` a line below."""

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
    """A cell of a heat map; `depth` is the shade from 0 to 9 (darkest), None if unknown."""

    text: str
    depth: int | None
    tip: str


@dataclass(frozen=True)
class Matrix:
    """A square heat map with the same names on both sides."""

    names: Sequence[str]
    rows: Sequence[Sequence[MatrixCell]]
    kind: str = "matrix"


@dataclass(frozen=True)
class ScatterPoint:
    """A point of a scatter plot with a vertical interval; all positions in percent."""

    x: float
    y: float
    low: float
    high: float
    tip: str


@dataclass(frozen=True)
class Square:
    """A scatter plot with the same ticks on both axes, and the diagonal."""

    points: Sequence[ScatterPoint]
    ticks: Sequence[tuple[float, str]]
    across: str
    upward: str
    title: str = ""
    kind: str = "square"


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve, in percent; `is_chosen` marks the selected point."""

    x: float
    y: float
    tip: str
    is_chosen: bool = False


@dataclass(frozen=True)
class CurveLine:
    """Points drawn as a line with dots, a line, dots, stars, or the outline of a band."""

    points: Sequence[CurvePoint]
    tone: str
    shape: Literal["joined", "line", "dots", "stars", "band"] = "joined"


@dataclass(frozen=True)
class Curves:
    """Curves in one coordinate system."""

    curves: Sequence[CurveLine]
    across: Axis
    upward: Axis
    title: str
    legend: Sequence[tuple[str, str]] = ()
    kind: str = "curves"


@dataclass(frozen=True)
class Multiples:
    """Small drawings side by side with a common scale, e.g. one per tenant; `note` is a line below."""

    drawings: Sequence[Chart | Square]
    title: str = ""
    note: str = ""
    kind: str = "multiples"


@dataclass(frozen=True)
class Facts:
    """Named numbers."""

    pairs: Sequence[tuple[str, str]]
    kind: str = "facts"


@dataclass(frozen=True)
class Text:
    """An untrusted text.

    Attributes:
        clipped: excerpt, around the first query term if there is one.
        full_blocks: the full text; empty if the excerpt is complete.
        role: positive, negative etc.
        note: e.g. its probability.
        heading_pieces: title of the document and heading, if known.
        document: id of the document.
    """

    clipped: Sequence[TextBlock]
    full_blocks: Sequence[TextBlock] = ()
    role: str = ""
    note: str = ""
    heading_pieces: Sequence[Sequence[Piece]] = ()
    document: str = ""


@dataclass(frozen=True)
class Quote:
    """A query with its texts; `more` is collapsed."""

    head: str
    tags: Sequence[str]
    texts: Sequence[Text]
    more: Sequence[Text] = ()


@dataclass(frozen=True)
class Quotes:
    """A list of quotes; those after the first `n_open` are in a part to open."""

    quotes: Sequence[Quote]
    n_open: int = 10
    kind: str = "quotes"


Drawing = Chart | Matrix | Square | Curves | Multiples | Facts | Quotes


@dataclass(frozen=True)
class AxisScale:
    """A linear scale from `low` to `high`."""

    low: float
    high: float

    @classmethod
    def up_to(cls, high: float) -> "AxisScale":
        """Scale from 0 to a round number of at least `high`."""
        step = round_up_nicely(high / 4)
        return cls(0, max(step, ceil(round(high / step, 6)) * step))

    @classmethod
    def including(cls, low: float, high: float, min_span: float) -> "AxisScale":
        """Scale with round ends around [low, high] and at least `min_span` long; negative only if `low` is."""
        step = round_up_nicely(max(high - low, min_span) / 4)
        first, last = floor(round(low / step, 6)), ceil(round(high / step, 6))
        min_steps = max(1, ceil(round(min_span / step, 6)))
        first = min(first, last - min_steps if first < 0 else max(last - min_steps, 0))
        return cls(round(first * step, 9), round(max(last, first + min_steps) * step, 9))

    def position_of(self, value: float) -> float:
        """Position in percent, clamped to [0, 100]."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return round(100 * min(1.0, max(0.0, share)), 2)

    def span(self, low: float, high: float) -> float:
        """Length in percent between two numbers."""
        return round(self.position_of(high) - self.position_of(low), 2)

    def axis(self, title: str, max_ticks: int = 5) -> Axis:
        """Axis with about `max_ticks` round ticks."""
        step = round_up_nicely((self.high - self.low) / max_ticks)
        first, last = ceil(round(self.low / step, 6)), floor(round(self.high / step, 6))
        ticks = [round(number * step, 9) for number in range(first, last + 1)]
        return Axis(title, [(self.position_of(tick), brief(tick, self.high)) for tick in ticks])


def round_up_nicely(value: float) -> float:
    """Smallest of 1, 2 and 5 times a power of ten that is at least `value`; 1 if `value` is not positive."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if round(step * power, 12) >= round(value, 12))


def integer_step(value: float) -> int:
    """`round_up_nicely` as an integer of at least 1."""
    return max(1, int(round_up_nicely(value)))
