"""What can be drawn. Places along an axis are percent of its length, so that a drawing fits any width."""

from collections.abc import Sequence
from dataclasses import dataclass


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
class Cell:
    """A cell of a matrix; `depth` is 0 to 9, the darkest, or none where nothing is known."""

    text: str
    depth: int | None
    tip: str


@dataclass(frozen=True)
class Matrix:
    """A square of values, with the same names along both sides."""

    names: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kind: str = "matrix"


@dataclass(frozen=True)
class Point:
    """An estimate with its interval in a square; all in percent, upwards and to the right."""

    x: float
    y: float
    low: float
    high: float
    tip: str


@dataclass(frozen=True)
class Square:
    """Points between two axes from 0 to 1, with the diagonal."""

    points: Sequence[Point]
    across: str
    upward: str
    title: str = ""
    kind: str = "square"


@dataclass(frozen=True)
class Facts:
    """A few named numbers."""

    pairs: Sequence[tuple[str, str]]
    kind: str = "facts"


@dataclass(frozen=True)
class Text:
    """A text from outside; `role` says what it is (positive, negative), `note` what is known of it."""

    role: str
    text: str
    note: str = ""


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


Drawing = Chart | Matrix | Square | Facts | Quotes
