"""What a student learns from: how far its vector is from its teacher's (ScalingNote, Eq. 15)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

WEIGHT = 1.0
"""λ of Eq. 15 (ScalingNote, 4.2)."""


def parts(teacher: Tensor, student: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over queries of ‖q − s‖², summed over dimensions, and of 1 − cos(q, s).

    Args:
        teacher: q, shape (n_queries, dimensions).
        student: s, likewise.
    """
    squared = (teacher - student).square().sum(dim=1).mean()
    return squared, (1 - functional.cosine_similarity(teacher, student, dim=1)).mean()


def distillation(squared: Tensor, cosine: Tensor, weight: float = WEIGHT) -> Tensor:
    """ScalingNote, Eq. 15, with λ(1 − cos) in the place of −λ·cos: the same gradient, and 0 where both are one.

    Args:
        squared: the first of `parts`.
        cosine: the second.
        weight: λ.
    """
    return squared + weight * cosine
