"""How far the same model's vectors may differ from run to run, by the precision of its weights."""

from __future__ import annotations

ROUNDING = {"float32": 1e-3, "float16": 2e-3, "bfloat16": 1e-2}
"""The largest difference of a number of a unit vector: sums in another order, batches of another size, and weights
rounded to 11 (float16) or 8 bits (bfloat16), of which an encoder's layers add up some."""


def rounding(dtype: str) -> float:
    """The tolerance for a precision, as settings (`bfloat16`) or torch (`torch.bfloat16`) name it."""
    return ROUNDING[dtype.removeprefix("torch.")]
