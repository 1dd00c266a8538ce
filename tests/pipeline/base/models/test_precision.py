"""Tolerances of vectors by dtype."""

import pytest

from darklode.pipeline.base.models.precision import rounding


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_dtype_may_be_named_as_in_settings_or_as_in_torch(dtype: str) -> None:
    assert rounding(dtype) == rounding(f"torch.{dtype}")


def test_fewer_bits_tolerate_more() -> None:
    assert rounding("float32") < rounding("float16") < rounding("bfloat16")
