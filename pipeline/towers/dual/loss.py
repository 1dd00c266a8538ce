"""Losses of joint training: contrastive and margin losses over views and Matryoshka dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class ContrastiveBatch:
    """Vectors of a batch, gathered over all processes; they need not be of unit length.

    A view is a part of a document that gets a vector of its own: title, content or all.

    Attributes:
        queries: query vectors, shape (n, dimensions).
        positives: vectors of each query's positive document by view, shape (views, n, dimensions).
        negatives: vectors of each query's hard negative by view, same shape as `positives`.
        has_view: whether each positive document has the view, shape (views, n).
        against: whether each hard negative has the view, shape (views, n).
        weight: relative weight of each query's positive, shape (n,).
        allowed: which documents enter the softmax of which query, shape (n, n): the query's own positive and all
            documents that are not labelled as its positives. Without it, false negatives would be pushed away.
    """

    queries: Tensor
    positives: Tensor
    negatives: Tensor
    has_view: Tensor
    against: Tensor
    weight: Tensor
    allowed: Tensor


def contrastive(batch: ContrastiveBatch, nested: Sequence[int], temperature: float) -> Tensor:
    """Compute L^con of ScalingNote, Eq. 5 to 8: in-batch contrastive loss in both directions.

    Views and dimensions have the weight 1, pairs that of their positive. The loss is summed over views and Matryoshka
    dimensions; documents without a view are left out of its sums.

    Args:
        batch: the vectors.
        nested: Matryoshka dimensions, M in the paper.
        temperature: τ, which the paper does not state.
    """
    total = batch.queries.new_zeros(())
    own_pairs = torch.eye(len(batch.queries), dtype=torch.bool, device=batch.queries.device)
    for view_vectors, has_view in zip(batch.positives, batch.has_view, strict=True):
        allowed_documents = (batch.allowed & has_view[None, :]) | own_pairs
        allowed_queries = batch.allowed.T | own_pairs
        for m in nested:
            logits = _unit(batch.queries, m) @ _unit(view_vectors, m).T / temperature
            query_losses = _cross_entropy(logits, allowed_documents)
            document_losses = _cross_entropy(logits.T, allowed_queries)
            query_loss, document_loss = (
                _masked_mean(batch.weight * losses, has_view) for losses in (query_losses, document_losses)
            )
            total = total + (query_loss + document_loss) / 2
    return total


def hard_margin(batch: ContrastiveBatch, nested: Sequence[int], margin: float) -> Tensor:
    """Compute L^hard of ScalingNote, Eq. 9 to 11: margin loss against the hard negative.

    Views and dimensions have the weight 1, pairs that of their positive. The loss is summed over views and Matryoshka
    dimensions; rows where either document lacks the view are left out.

    Args:
        batch: the vectors.
        nested: Matryoshka dimensions.
        margin: minimum difference in cosine between the positive and the hard negative.
    """
    total = batch.queries.new_zeros(())
    both_have_view = batch.has_view & batch.against
    for positives, negatives, is_counted in zip(batch.positives, batch.negatives, both_have_view, strict=True):
        for m in nested:
            queries = _unit(batch.queries, m)
            positive_scores, negative_scores = (
                (queries * _unit(documents, m)).sum(dim=1) for documents in (positives, negatives)
            )
            losses = batch.weight * functional.relu(margin - positive_scores + negative_scores)
            total = total + _masked_mean(losses, is_counted)
    return total


def _unit(vectors: Tensor, m: int) -> Tensor:
    """Truncate vectors to their first m dimensions and normalize them."""
    return functional.normalize(vectors[:, :m], dim=1)


def _cross_entropy(logits: Tensor, allowed: Tensor) -> Tensor:
    """Cross-entropy of each row, shape (n,); a row's target is its diagonal entry.

    Args:
        logits: shape (n, n).
        allowed: which entries take part in each row's softmax, shape (n, n).
    """
    masked_logits = logits.masked_fill(~allowed, float("-inf"))
    return torch.logsumexp(masked_logits, dim=1) - masked_logits.diagonal()


def _masked_mean(values: Tensor, is_counted: Tensor) -> Tensor:
    """Mean of the counted values; 0 if none is counted."""
    return torch.where(is_counted, values, 0.0).sum() / is_counted.sum().clamp(min=1)
