"""Settings of training towers that exclude each other."""

from typing import Any

import pytest
from pydantic import ValidationError

from darklode.schemas.towers import DualSettings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"matryoshka_dims": (64, 32)}, "must be ascending"),
        ({"matryoshka_dims": (32, 32)}, "must be ascending"),
        ({"views": ("title",)}, "views must contain `all`"),
        ({"views": ("all", "all")}, "no view twice"),
    ],
)
def test_dimensions_ascend_and_the_indexed_view_is_trained(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DualSettings(**values)
