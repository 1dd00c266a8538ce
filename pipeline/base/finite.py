"""Unknown numbers as null."""

from __future__ import annotations

import math
from typing import SupportsFloat


def finite_or_none(value: SupportsFloat) -> float | None:
    """The value, or None if it is NaN or infinite: unknown is null in tables and facts."""
    number = float(value)
    return number if math.isfinite(number) else None
