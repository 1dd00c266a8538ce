"""Type aliases used by several packages."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
"""Vectors and scores."""

Doubles = NDArray[np.float64]
"""Statistics and fits."""

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
"""Hashes as numbers; in keyed stores shape (n, 2): the first and the last 16 hex digits of each hash."""

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

Row = dict[str, Any]
"""A table row by column name."""

Rows = list[Row]

Facts = dict[str, Any]
"""Facts recorded in a manifest or in a JSON record beside data, by name."""
