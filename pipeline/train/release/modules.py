"""Modules of sentence-transformers that saved encoders are made of."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from darklode.pipeline.base.types import Floats

SENTENCE_EMBEDDING = "sentence_embedding"


def modules() -> Any:
    """Module path of the layers: it differs between sentence-transformers up to 5.4 and later versions."""
    try:
        return import_module("sentence_transformers.sentence_transformer.modules")
    except ImportError:
        return import_module("sentence_transformers.models")


def dense_module(
    weight: Floats,
    bias: Floats | None,
    *,
    gelu: bool = False,
    source: str = SENTENCE_EMBEDDING,
    target: str = SENTENCE_EMBEDDING,
) -> Any:
    """A linear layer.

    Args:
        weight: shape (out, in).
        bias: shape (out,); None: none.
        gelu: whether GELU follows.
        source: feature that it reads.
        target: feature that it writes.
    """
    import torch

    layer = modules().Dense(
        weight.shape[1],
        weight.shape[0],
        bias=bias is not None,
        activation_function=torch.nn.GELU() if gelu else torch.nn.Identity(),
        module_input_name=source,
        module_output_name=target,
    )
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(weight))
        if bias is not None:
            layer.linear.bias.copy_(torch.from_numpy(bias))
    return layer
