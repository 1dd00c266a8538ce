"""Heads: small networks added to a query vector before normalization. Each starts as the identity."""

from __future__ import annotations

import json

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.types import Layers, Weights

N_LAYERS = {"linear": 1, "closed_form": 1, "whitened": 1, "ffn": 3}
"""Number of layers of each method's head, each as wide as a vector."""


class Head(nn.Module):
    """x → (x + f(x)) / |x + f(x)|, where f is linear layers with GELU between them.

    The last layer starts as 0, so the head starts as the base; hidden layers start as the identity. The FFN of
    DevRev-Search (A.4) is f alone, which is not the identity at the start.

    Args:
        dimensions: length of a vector.
        layers: number of layers, at least 1.
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
        """Adapted unit vectors, same shape as the input."""
        hidden = vectors
        for number, layer in enumerate(self.layers):
            hidden = layer(functional.gelu(hidden) if number else hidden)
        return functional.normalize(vectors + hidden, dim=1)

    def apply_to(self, vectors: Floats) -> Floats:
        """The same on NumPy arrays without gradients; a zero vector stays zero."""
        with torch.no_grad():
            adapted = self(torch.from_numpy(np.ascontiguousarray(vectors, np.float32))).numpy()
        adapted[~vectors.any(axis=1)] = 0
        return np.asarray(adapted, np.float32)

    def state(self) -> Weights:
        """Copies of the weights by name."""
        return name_tensors(self.weights())

    def weights(self, share: float = 1.0) -> Layers:
        """Copies of the weights at a share of the way from the base: the last layer is scaled by the share."""
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

    def _linear(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


def dense(layers: Layers) -> Layers:
    """The same head as plain layers without the residual sum, for export.

    With hidden layers, x and −x are carried along, because GELU(x) − GELU(−x) = x.
    """
    eye = np.eye(len(layers[0][1]), dtype=np.float32)
    if len(layers) == 1:
        return [(layers[0][0] + eye, layers[0][1])]
    no_bias = np.zeros_like(layers[0][1])
    first, last = layers[0], layers[-1]
    dense_layers = [(np.concatenate([first[0], eye, -eye]), np.concatenate([first[1], no_bias, no_bias]))]
    for weight, bias in layers[1:-1]:
        zero = np.zeros_like(eye)
        rows = [[weight, zero, zero], [zero, eye, -eye], [zero, -eye, eye]]
        dense_layers.append((np.block(rows), np.concatenate([bias, no_bias, no_bias])))
    return [*dense_layers, (np.concatenate([last[0], eye, -eye], axis=1), last[1])]


def add_residual(layers: Layers) -> Layers:
    """Inverse of `dense`: the weights of f in x + f(x)."""
    d = len(layers[-1][1])
    if len(layers) == 1:
        return [(layers[0][0] - np.eye(d, dtype=np.float32), layers[0][1])]
    hidden = [(weight[:d, :d], bias[:d]) for weight, bias in layers[:-1]]
    return [*hidden, (layers[-1][0][:, :d], layers[-1][1])]


def apply_layers(layers: Layers, vectors: Floats) -> Floats:
    """Apply plain layers as given by `dense`, then normalize; without layers the input is returned. Zero stays zero."""
    tensor = torch.from_numpy(np.array(vectors, np.float32))
    for number, (weight, bias) in enumerate(layers):
        tensor = functional.linear(
            functional.gelu(tensor) if number else tensor, *map(torch.from_numpy, (weight, bias))
        )
    adapted = functional.normalize(tensor, dim=1).numpy() if layers else tensor.numpy()
    adapted[~vectors.any(axis=1)] = 0
    return np.asarray(adapted, np.float32)


def head_bytes(layers: Layers, encoder: str) -> bytes:
    """The file of a head.

    Args:
        layers: plain layers, as `apply_layers` takes them.
        encoder: id of the encoder whose vectors it takes.
    """
    from safetensors.numpy import save

    about = {"between": "GELU", "input": "unit vector", "output": "to be normalised", "base": encoder}
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in name_tensors(layers).items()}
    # One metadata key only: the order of several keys in the file is not fixed.
    return save(tensors, metadata={"darklode": json.dumps(about, sort_keys=True)})


def name_tensors(layers: Layers) -> dict[str, Floats]:
    """The tensors of a head by name: `0.weight`, `0.bias` and so on."""
    parts = ("weight", "bias")
    return {f"{n}.{part}": value for n, layer in enumerate(layers) for part, value in zip(parts, layer, strict=True)}


def layers_of(weights: Weights) -> Layers:
    """Inverse of `name_tensors`; other tensors are ignored."""
    n_layers = sum(name.partition(".")[0].isdigit() for name in weights) // 2
    return [(weights[f"{n}.weight"], weights[f"{n}.bias"].reshape(-1)) for n in range(n_layers)]
