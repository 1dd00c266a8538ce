"""Losses of joint training: contrastive and margin losses over views and Matryoshka dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class ContrastiveBatch:
    """Vectors of a batch over all processes, of any length.

    Attributes:
        queries: shape (n, dimensions).
        positives: each query's document by view, shape (views, n, dimensions).
        negatives: its hard negative, same shape.
        has_view: which documents have the view, shape (views, n).
        against: which hard negatives have it, same shape.
        allowed: which documents count for which query, shape (n, n): its own, and those that are not its positives.
    """

    queries: Tensor
    positives: Tensor
    negatives: Tensor
    has_view: Tensor
    against: Tensor
    allowed: Tensor


def contrastive(batch: ContrastiveBatch, nested: Sequence[int], temperature: float) -> Tensor:
    """L^con of ScalingNote, Eq. 5 to 8, with all weights 1; missing views are left out of every sum.

    Args:
        batch: the vectors.
        nested: Matryoshka dimensions, M in the paper.
        temperature: τ, which the paper does not state.
    """
    total = batch.queries.new_zeros(())
    own = torch.eye(len(batch.queries), dtype=torch.bool, device=batch.queries.device)
    for view, present in zip(batch.positives, batch.has_view, strict=True):
        to_document, to_query = (batch.allowed & present[None, :]) | own, batch.allowed.T | own
        for m in nested:
            similar = _unit(batch.queries, m) @ _unit(view, m).T / temperature
            total = total + (_chosen(similar, to_document, present) + _chosen(similar.T, to_query, present)) / 2
    return total


def hard_margin(batch: ContrastiveBatch, nested: Sequence[int], margin: float) -> Tensor:
    """L^hard of ScalingNote, Eq. 9 to 11, with all weights 1, over rows where both documents have the view.

    Args:
        batch: the vectors.
        nested: Matryoshka dimensions.
        margin: by which a document must be nearer than the hard negative.
    """
    total = batch.queries.new_zeros(())
    for right, wrong, both in zip(batch.positives, batch.negatives, batch.has_view & batch.against, strict=True):
        for m in nested:
            queries = _unit(batch.queries, m)
            positive_scores, far = ((queries * _unit(view, m)).sum(dim=1) for view in (right, wrong))
            total = total + _mean(functional.relu(margin - positive_scores + far), both)
    return total


def _unit(vectors: Tensor, m: int) -> Tensor:
    return functional.normalize(vectors[:, :m], dim=1)


def _chosen(similar: Tensor, allowed: Tensor, counted: Tensor) -> Tensor:
    """Mean over the counted rows of the negative log softmax of each row's own entry among the allowed ones."""
    logits = similar.masked_fill(~allowed, float("-inf"))
    return _mean(torch.logsumexp(logits, dim=1) - logits.diagonal(), counted)


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    return torch.where(counted, values, 0.0).sum() / counted.sum().clamp(min=1)
