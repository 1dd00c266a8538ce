"""Losses over query vectors and candidates, for one head or several stacked heads: one value per query."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from darklode.pipeline.train.fit.batches import Batch
from darklode.schemas.adaptation import AdaptSettings


def info_nce(queries: Tensor, candidates: Tensor, target: Tensor, allowed: Tensor, temperature: float) -> Tensor:
    """InfoNCE: cross-entropy of each query's positive among its candidates, shape (..., n_queries).

    If every candidate is allowed, its mean equals MultipleNegativesRankingLoss at scale 1 / temperature.

    Args:
        queries: unit vectors, shape (..., n_queries, dimensions).
        candidates: unit vectors, shape (..., n_candidates, dimensions).
        target: index of each query's positive, shape (n_queries,).
        allowed: shape (..., n_queries, n_candidates); must include the positive.
        temperature: τ.

    Source: DevRev-Search, A.4, which prints no formula; van den Oord et al. 2018.
    """
    logits = (queries @ candidates.mT / temperature).masked_fill(~allowed, float("-inf"))
    expanded_target = target.expand(logits.shape[:-1]).reshape(-1)
    loss = functional.cross_entropy(logits.flatten(0, -2), expanded_target, reduction="none")
    return loss.view(logits.shape[:-1])


def divergence(queries: Tensor, candidates: Tensor, target: Tensor, allowed: Tensor, temperature: float) -> Tensor:
    """KL divergence of each query's softmax from a target distribution; equals `info_nce` for a one-hot target.

    Args:
        queries: unit vectors, shape (..., n_queries, dimensions).
        candidates: unit vectors, shape (..., n_candidates, dimensions).
        target: rows that sum to 1, shape (..., n_queries, n_candidates); 0 where a candidate is not allowed.
        allowed: shape (..., n_queries, n_candidates).
        temperature: τ.
    """
    logits = (queries @ candidates.mT / temperature).masked_fill(~allowed, float("-inf"))
    logs = functional.log_softmax(logits, dim=-1).masked_fill(~allowed, 0.0)
    return functional.kl_div(logs, target, reduction="none").sum(dim=-1)


def squared_shift(queries: Tensor, base: Tensor) -> Tensor:
    """Squared distance of each query from its anchor; both of shape (..., n_queries, dimensions)."""
    return torch.sum((queries - base) ** 2, dim=-1)


def batch_loss(
    adapted: Tensor, batch: Batch, settings: AdaptSettings, first: int = 0, texts: Tensor | None = None
) -> Tensor:
    """Loss of each adapted unit vector, shape (..., n_queries).

    The weight of a query's positive multiplies its contrastive loss, but not the distance to the anchor: the less
    probable the label, the nearer the query stays.

    Args:
        adapted: unit vectors of all queries of a batch, or of a contiguous part, shape (..., n_queries, dimensions).
        batch: the loss inputs.
        settings: temperature and weight of the distance to the anchor.
        first: index in the batch of the first adapted vector.
        texts: candidate vectors if documents are trained, too; None: those of the batch.
    """
    rows = slice(first, first + adapted.shape[-2])
    anchor, frozen = (
        torch.from_numpy(array).to(adapted.device) for array in (batch.anchor[..., rows, :], batch.candidates)
    )
    vectors = frozen if texts is None else texts
    allowed = torch.from_numpy(batch.allowed[..., rows, :]).to(adapted.device)
    if batch.target is not None:
        target = torch.from_numpy(batch.target[..., rows, :]).to(adapted.device)
        losses = divergence(adapted, vectors, target, allowed, settings.temperature)
    else:
        positives = torch.arange(rows.start, rows.stop, device=adapted.device)
        losses = info_nce(adapted, vectors, positives, allowed, settings.temperature)
    if batch.weight is not None:
        losses = losses * torch.from_numpy(batch.weight[..., rows]).to(adapted.device)
    return losses + settings.l2_to_base * squared_shift(adapted, anchor)
