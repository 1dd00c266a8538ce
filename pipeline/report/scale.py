"""From numbers to places on a page."""

from dataclasses import dataclass
from math import ceil, floor, log10

from pipeline.report.drawing import Axis
from pipeline.report.numbers import brief


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high`, along an axis."""

    low: float
    high: float

    @classmethod
    def up_to(cls, high: float) -> "Scale":
        """From 0 to a round number, at least `high`."""
        step = nice(high / 4)
        return cls(0, max(step, ceil(round(high / step, 6)) * step))

    @classmethod
    def around(cls, low: float, high: float, least: float) -> "Scale":
        """Round numbers around both ends, at least so far from one another."""
        step = nice(max(high - low, least) / 4)
        top = ceil(round(high / step, 6)) * step
        return cls(min(floor(round(low / step, 6)) * step, top - 4 * step), top)

    def at(self, value: float) -> float:
        """Percent of the way, never outside."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return round(100 * min(1.0, max(0.0, share)), 2)

    def span(self, low: float, high: float) -> float:
        """Percent between two numbers."""
        return round(self.at(high) - self.at(low), 2)

    def axis(self, title: str, most: int = 5) -> Axis:
        """The axis with round ticks, at most so many."""
        step = nice((self.high - self.low) / most)
        first, last = ceil(round(self.low / step, 6)), floor(round(self.high / step, 6))
        ticks = [round(number * step, 9) for number in range(first, last + 1)]
        return Axis(title, [(self.at(tick), brief(tick, self.high)) for tick in ticks])


def nice(value: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below the value; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if round(step * power, 12) >= round(value, 12))


def whole_step(value: float) -> int:
    """The same, never below 1."""
    return max(1, int(nice(value)))
