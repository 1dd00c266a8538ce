"""InfoNCE over query vectors and frozen candidates, of one head or of several at once: each query's own loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def info_nce(queries: Tensor, candidates: Tensor, target: Tensor, allowed: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of each query's positive among its candidates, shape (…, n_queries).

    With every candidate allowed its mean is sentence-transformers' MultipleNegativesRankingLoss at 1 / temperature.

    Args:
        queries: unit vectors, shape (…, n_queries, dimensions).
        candidates: unit vectors, shape (…, n_candidates, dimensions).
        target: each query's positive among them, shape (n_queries,).
        allowed: which count for which query, shape (…, n_queries, n_candidates); the positive must.
        temperature: τ.

    Source: DevRev-Search, A.4, which prints no formula; van den Oord et al. 2018.
    """
    logits = (queries @ candidates.mT / temperature).masked_fill(~allowed, float("-inf"))
    every = target.expand(logits.shape[:-1]).reshape(-1)
    loss = functional.cross_entropy(logits.flatten(0, -2), every, reduction="none")
    return loss.view(logits.shape[:-1])


def divergence(queries: Tensor, candidates: Tensor, target: Tensor, allowed: Tensor, temperature: float) -> Tensor:
    """KL divergence of each query's candidates from a distribution; `info_nce` where that is one of them.

    Args:
        queries: unit vectors, shape (…, n_queries, dimensions).
        candidates: unit vectors, shape (…, n_candidates, dimensions).
        target: rows that sum to 1, shape (…, n_queries, n_candidates); 0 where a candidate does not count.
        allowed: which count for which query, shape (…, n_queries, n_candidates).
        temperature: τ.
    """
    logits = (queries @ candidates.mT / temperature).masked_fill(~allowed, float("-inf"))
    logs = functional.log_softmax(logits, dim=-1).masked_fill(~allowed, 0.0)
    return functional.kl_div(logs, target, reduction="none").sum(dim=-1)


def squared_shift(queries: Tensor, base: Tensor) -> Tensor:
    """Squared distance of each query from where the base puts them; both of shape (…, n_queries, dimensions)."""
    return torch.sum((queries - base) ** 2, dim=-1)
