"""Type aliases and file names of adaptation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from darklode.pipeline.base.types import Floats

Weights = Mapping[str, Floats]
"""Tensors by name. Read from rows they have two dimensions; a one-dimensional tensor becomes a single row."""

Layers = list[tuple[Floats, Floats]]
"""Weights, shape (out, in), and biases, shape (out,), of consecutive linear layers."""

OnStep = Callable[[int, str], None]
"""Progress callback of a training trial: steps done, and a message."""

TENSORS_FILE = "adapter.safetensors"
"""File of the trained tensors alone, in `adapter/`."""
