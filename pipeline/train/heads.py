"""Heads: what is added to a query's vector before it gets length 1 again. All begin as the base itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from darklode.pipeline.train.weights import Floats, Weights

if TYPE_CHECKING:
    from darklode.pipeline.train.task import QuerySet

Layers = list[tuple[Floats, Floats]]
"""Weights, shape (out, in), and biases, shape (out,), of each layer."""

LAYERS = {"linear": 1, "closed_form": 1, "whitened": 1, "ffn": 3}
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
        hidden = vectors
        for number, layer in enumerate(self.layers):
            hidden = layer(functional.gelu(hidden) if number else hidden)
        return functional.normalize(vectors + hidden, dim=1)

    def apply_to(self, vectors: Floats) -> Floats:
        """The same outside of training; a zero vector stays zero."""
        with torch.no_grad():
            adapted = self(torch.from_numpy(np.ascontiguousarray(vectors, np.float32))).numpy()
        adapted[~vectors.any(axis=1)] = 0
        return np.asarray(adapted, np.float32)

    def vectors(self, queries: QuerySet) -> Floats:
        """Adapted vectors of queries."""
        return self.apply_to(queries.vectors)

    def state(self) -> Weights:
        """Copies of its weights, by name."""
        return name_tensors(self.weights())

    def weights(self, share: float = 1.0) -> Layers:
        """Copies of its weights, a share of the way from the base's to its own: the last layer's times the share."""
        layers = [
            (linear.weight.detach().numpy().copy(), linear.bias.detach().numpy().copy()) for linear in self._linear()
        ]
        weight, bias = layers[-1]
        return [*layers[:-1], (weight * np.float32(share), bias * np.float32(share))]

    @classmethod
    def from_layers(cls, layers: Layers) -> Head:
        """A head with these weights."""
        head = cls(len(layers[0][1]), len(layers))
        with torch.no_grad():
            for layer, (weight, bias) in zip(head._linear(), layers, strict=True):
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
        return head

    @classmethod
    def mapping(cls, weight: Floats) -> Head:
        """A head of one layer that is a linear map, shape (dimensions, dimensions), and then length 1."""
        return cls.from_layers([(weight - np.eye(len(weight), dtype=np.float32), np.zeros(len(weight), np.float32))])

    def _linear(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


def dense(layers: Layers) -> Layers:
    """The same head as plain layers with GELU between them, without the sum: x + f(x) before the length is set to 1.

    Where there are hidden layers each carries x and −x along, since GELU(x) − GELU(−x) = x.
    """
    eye = np.eye(len(layers[0][1]), dtype=np.float32)
    if len(layers) == 1:
        return [(layers[0][0] + eye, layers[0][1])]
    none = np.zeros_like(layers[0][1])
    first, last = layers[0], layers[-1]
    dense_layers = [(np.concatenate([first[0], eye, -eye]), np.concatenate([first[1], none, none]))]
    for weight, bias in layers[1:-1]:
        zero = np.zeros_like(eye)
        rows = [[weight, zero, zero], [zero, eye, -eye], [zero, -eye, eye]]
        dense_layers.append((np.block(rows), np.concatenate([bias, none, none])))
    return [*dense_layers, (np.concatenate([last[0], eye, -eye], axis=1), last[1])]


def add_residual(layers: Layers) -> Layers:
    """What `dense` made plain layers of: the weights of f in x + f(x)."""
    d = len(layers[-1][1])
    if len(layers) == 1:
        return [(layers[0][0] - np.eye(d, dtype=np.float32), layers[0][1])]
    hidden = [(weight[:d, :d], bias[:d]) for weight, bias in layers[:-1]]
    return [*hidden, (layers[-1][0][:, :d], layers[-1][1])]


def apply_layers(layers: Layers, vectors: Floats) -> Floats:
    """Vectors through plain layers, as `dense` gives them, at length 1; of none the same, a zero vector stays zero."""
    tensor = torch.from_numpy(np.array(vectors, np.float32))
    for number, (weight, bias) in enumerate(layers):
        tensor = functional.linear(
            functional.gelu(tensor) if number else tensor, *map(torch.from_numpy, (weight, bias))
        )
    out = functional.normalize(tensor, dim=1).numpy() if layers else tensor.numpy()
    out[~vectors.any(axis=1)] = 0
    return np.asarray(out, np.float32)


def name_tensors(layers: Layers) -> dict[str, Floats]:
    """A head's tensors by name: `0.weight` and `0.bias` of the first layer, and so on."""
    parts = ("weight", "bias")
    return {f"{n}.{part}": value for n, layer in enumerate(layers) for part, value in zip(parts, layer, strict=True)}


def layers_of(weights: Weights) -> Layers:
    """The layers that `name_tensors` gave names to."""
    return [(weights[f"{n}.weight"], weights[f"{n}.bias"].reshape(-1)) for n in range(len(weights) // 2)]
