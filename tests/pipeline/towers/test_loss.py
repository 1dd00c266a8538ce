"""Eq. 15 of ScalingNote against itself, written out in NumPy."""

import numpy as np
import pytest
import torch

from darklode.pipeline.towers.loss import distillation, distillation_parts


def literal(teacher: np.ndarray, student: np.ndarray, weight: float) -> float:  # type: ignore[type-arg]
    """Eq. 15 as it is printed: −λ·sim, query by query, dimension by dimension."""
    total = 0.0
    for q, s in zip(teacher.tolist(), student.tolist(), strict=True):
        squared = sum((a - b) ** 2 for a, b in zip(q, s, strict=True))
        dot = sum(a * b for a, b in zip(q, s, strict=True))
        lengths = sum(a * a for a in q) ** 0.5 * sum(b * b for b in s) ** 0.5
        total += squared - weight * dot / lengths
    return total / len(teacher)


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("unit", [True, False])
def test_the_loss_is_eq_15_plus_its_weight(weight: float, unit: bool) -> None:
    draws = np.random.default_rng(3)
    teacher, student = draws.standard_normal((2, 7, 5))
    if unit:
        teacher, student = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (teacher, student))
    found = distillation(*distillation_parts(torch.from_numpy(teacher), torch.from_numpy(student)), weight)
    assert found.item() == pytest.approx(literal(teacher, student, weight) + weight)


def test_its_gradient_is_that_of_eq_15() -> None:
    draws = np.random.default_rng(4)
    teacher, student = draws.standard_normal((2, 3, 4))
    learning = torch.from_numpy(student).requires_grad_()
    distillation(*distillation_parts(torch.from_numpy(teacher), learning)).backward()  # type: ignore[no-untyped-call]
    assert learning.grad is not None
    for row in range(3):
        for column in range(4):
            step = np.zeros_like(student)
            step[row, column] = 1e-6
            slope = (literal(teacher, student + step, 1.0) - literal(teacher, student - step, 1.0)) / 2e-6
            assert learning.grad[row, column].item() == pytest.approx(slope, abs=1e-7)


def test_a_student_that_is_its_teacher_loses_nothing() -> None:
    same = torch.nn.functional.normalize(torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), dim=1)
    squared, cosine = distillation_parts(same, same)
    assert (squared.item(), cosine.item()) == (0.0, pytest.approx(0.0, abs=1e-6))
