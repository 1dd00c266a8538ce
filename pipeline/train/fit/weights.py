"""Trained weights as table rows, independent of the method."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.types import Weights
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS


def as_rows(trial: int, weights: Weights) -> pa.Table:
    """Rows of `adapter_weights`, tensors in the order of their names."""
    return pa.concat_tables([_rows(trial, name, weights[name]) for name in sorted(weights)])


def _rows(trial: int, name: str, values: Floats) -> pa.Table:
    wide = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(1, -1)
    n, width = wide.shape
    offsets = pa.array((np.arange(n + 1) * width).astype(np.int32))
    return ADAPTER_WEIGHTS.rows(
        {
            "trial": pa.array(np.full(n, trial, np.int32)),
            "tensor": pa.repeat(name, n),
            "row": pa.array(np.arange(n, dtype=np.int32)),
            "weights": pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(wide, np.float32).reshape(-1))),
        }
    )


def load_weights(tables: Tables, trial: int) -> dict[str, Floats]:
    """Weights of a trial from `adapter_weights`."""
    return from_rows(tables.sql("FROM adapter_weights WHERE trial = $1", [trial]))


def from_rows(rows: pa.Table) -> dict[str, Floats]:
    """Inverse of `as_rows` for one trial."""
    ordered = rows.sort_by([("tensor", "ascending"), ("row", "ascending")])
    weights = {}
    for name in pc.unique(ordered["tensor"]).to_pylist():
        part = ordered.filter(pc.equal(ordered["tensor"], name))
        values = np.concatenate([chunk.flatten().to_numpy() for chunk in part["weights"].chunks])
        weights[name] = values.reshape(part.num_rows, -1).astype(np.float32, copy=False)
    return weights
