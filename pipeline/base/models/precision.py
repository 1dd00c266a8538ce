"""Tolerance for vectors of the same model in different runs, by dtype."""

from __future__ import annotations

ROUNDING = {"float32": 1e-3, "float16": 2e-3, "bfloat16": 1e-2}
"""Maximum difference of a value of a unit vector, caused by summation order, batch size and rounding to 11 (float16) or
8 bits (bfloat16), accumulated over the layers."""


def rounding(dtype: str) -> float:
    """The tolerance of a dtype, named as in settings (`bfloat16`) or torch (`torch.bfloat16`)."""
    return ROUNDING[dtype.removeprefix("torch.")]
