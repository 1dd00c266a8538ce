"""InfoNCE over query vectors and frozen candidates."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def info_nce(queries: Tensor, candidates: Tensor, target: Tensor, allowed: Tensor, temperature: float) -> Tensor:
    """Mean cross-entropy of each query's positive among its candidates.

    With every candidate allowed it is sentence-transformers' MultipleNegativesRankingLoss at scale 1 / temperature.

    Args:
        queries: unit vectors, shape (n_queries, dimensions).
        candidates: unit vectors, shape (n_candidates, dimensions).
        target: each query's positive among them, shape (n_queries,).
        allowed: which count for which query, shape (n_queries, n_candidates); the positive must.
        temperature: τ.

    Source: DevRev-Search, A.4, which prints no formula; van den Oord et al. 2018.
    """
    logits = queries @ candidates.T / temperature
    return functional.cross_entropy(logits.masked_fill(~allowed, float("-inf")), target)


def divergence(queries: Tensor, candidates: Tensor, target: Tensor, allowed: Tensor, temperature: float) -> Tensor:
    """Mean KL divergence of each query's candidates from a distribution; `info_nce` where that is one of them.

    Args:
        queries: unit vectors, shape (n_queries, dimensions).
        candidates: unit vectors, shape (n_candidates, dimensions).
        target: rows that sum to 1, shape (n_queries, n_candidates); 0 where a candidate does not count.
        allowed: which count for which query, shape (n_queries, n_candidates).
        temperature: τ.
    """
    logits = (queries @ candidates.T / temperature).masked_fill(~allowed, float("-inf"))
    logs = functional.log_softmax(logits, dim=1).masked_fill(~allowed, 0.0)
    return functional.kl_div(logs, target, reduction="batchmean")


def away(queries: Tensor, base: Tensor) -> Tensor:
    """Mean squared distance of queries from where the base puts them; both of shape (n_queries, dimensions)."""
    return torch.mean(torch.sum((queries - base) ** 2, dim=1))
