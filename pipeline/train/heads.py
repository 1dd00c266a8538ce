"""Heads: what is added to a query's vector before it gets length 1 again. All begin as the base itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS

Floats = NDArray[np.float32]
Layers = list[tuple[Floats, Floats]]
"""Weights, shape (out, in), and biases, shape (out,), of each layer."""

LAYERS = {"linear": 1, "closed_form": 1, "ffn": 3}
"""How many layers a method's head has, each as wide as a vector."""


class Head(nn.Module):
    """x → (x + f(x)) / |x + f(x)|, f being linear layers with GELU between them.

    The last layer begins as 0, so that the head begins as the base; hidden ones as the identity. FFN of DevRev-Search
    (A.4) has f alone, which is not the identity at the start.

    Args:
        dimensions: of a vector.
        layers: 1, or more.
    """

    def __init__(self, dimensions: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(dimensions, dimensions) for _ in range(layers)])
        with torch.no_grad():
            for layer in self._linear():
                layer.weight.copy_(torch.eye(dimensions))
                layer.bias.zero_()
            self._linear()[-1].weight.zero_()

    def forward(self, vectors: Tensor) -> Tensor:
        """Adapted unit vectors, of the shape of the given ones."""
        found = vectors
        for number, layer in enumerate(self.layers):
            found = layer(functional.gelu(found) if number else found)
        return functional.normalize(vectors + found, dim=1)

    def apply_to(self, vectors: Floats) -> Floats:
        """The same outside of training; a zero vector stays zero."""
        with torch.no_grad():
            found = self(torch.from_numpy(np.ascontiguousarray(vectors, np.float32))).numpy()
        found[~vectors.any(axis=1)] = 0
        return np.asarray(found, np.float32)

    def weights(self, share: float = 1.0) -> Layers:
        """Copies of its weights, a share of the way from the base's to its own: the last layer's times the share."""
        found = [(one.weight.detach().numpy().copy(), one.bias.detach().numpy().copy()) for one in self._linear()]
        weight, bias = found[-1]
        return [*found[:-1], (weight * np.float32(share), bias * np.float32(share))]

    @classmethod
    def of(cls, layers: Layers) -> Head:
        """A head with these weights."""
        head = cls(len(layers[0][1]), len(layers))
        with torch.no_grad():
            for layer, (weight, bias) in zip(head._linear(), layers, strict=True):
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
        return head

    def _linear(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


def trainable(method: str, dimensions: int) -> int:
    """Numbers that a method trains: n·(d² + d) for n layers (DevRev-Search, Table 5)."""
    return LAYERS[method] * (dimensions**2 + dimensions)


def dense(layers: Layers) -> Layers:
    """The same head as plain layers with GELU between them, without the sum: x + f(x) before the length is set to 1.

    Where there are hidden layers each carries x and −x along, since GELU(x) − GELU(−x) = x.
    """
    eye = np.eye(len(layers[0][1]), dtype=np.float32)
    if len(layers) == 1:
        return [(layers[0][0] + eye, layers[0][1])]
    none = np.zeros_like(layers[0][1])
    first, last = layers[0], layers[-1]
    found = [(np.concatenate([first[0], eye, -eye]), np.concatenate([first[1], none, none]))]
    for weight, bias in layers[1:-1]:
        zero = np.zeros_like(eye)
        rows = [[weight, zero, zero], [zero, eye, -eye], [zero, -eye, eye]]
        found.append((np.block(rows), np.concatenate([bias, none, none])))
    return [*found, (np.concatenate([last[0], eye, -eye], axis=1), last[1])]


def as_rows(trial: int, layers: Layers) -> pa.Table:
    """Weights as rows of `adapter_weights`."""
    found = [_rows(trial, number, *layer) for number, layer in enumerate(layers)]
    return pa.concat_tables(found)


def _rows(trial: int, number: int, weight: Floats, bias: Floats) -> pa.Table:
    n = len(bias)
    offsets = pa.array(np.arange(0, weight.size + 1, weight.shape[1], dtype=np.int32))
    return ADAPTER_WEIGHTS.rows(
        {
            "trial": pa.array(np.full(n, trial, np.int32)),
            "layer": pa.array(np.full(n, number, np.int32)),
            "row": pa.array(np.arange(n, dtype=np.int32)),
            "bias": pa.array(bias.astype(np.float32)),
            "weights": pa.ListArray.from_arrays(offsets, pa.array(weight.astype(np.float32).reshape(-1))),
        }
    )


def from_rows(rows: pa.Table) -> Layers:
    """What `as_rows` wrote of one trial."""
    ordered = rows.sort_by([("layer", "ascending"), ("row", "ascending")]).combine_chunks()
    layer = ordered["layer"].to_numpy()
    cuts: Sequence[int] = [0, *(np.flatnonzero(np.diff(layer)) + 1).tolist(), len(layer)]
    found = []
    for first, last in pairwise(cuts):
        part = ordered.slice(first, last - first)
        weight = part["weights"].combine_chunks().flatten().to_numpy().reshape(last - first, -1)
        found.append((weight.astype(np.float32), part["bias"].to_numpy().astype(np.float32)))
    return found
