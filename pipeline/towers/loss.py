"""Distillation loss: distance between the vectors of student and teacher (ScalingNote, Eq. 15)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

COSINE_WEIGHT = 1.0
"""λ of Eq. 15 (ScalingNote, 4.2)."""


def distillation_parts(teacher: Tensor, student: Tensor) -> tuple[Tensor, Tensor]:
    """Means over queries of ‖q − s‖², summed over dimensions, and of 1 − cos(q, s).

    Args:
        teacher: q, shape (n_queries, dimensions).
        student: s, same shape.
    """
    squared = (teacher - student).square().sum(dim=1).mean()
    return squared, (1 - functional.cosine_similarity(teacher, student, dim=1)).mean()


def distillation(squared: Tensor, cosine: Tensor, weight: float = COSINE_WEIGHT) -> Tensor:
    """ScalingNote, Eq. 15, with λ(1 − cos) instead of −λ·cos: the same gradient, and 0 for equal vectors.

    Args:
        squared: first of `distillation_parts`.
        cosine: second of `distillation_parts`.
        weight: λ.
    """
    return squared + weight * cosine
