"""Eq. 5 to 12 of ScalingNote, against a version that is written as the paper prints them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from darklode.pipeline.towers.dual.loss import ContrastiveBatch, contrastive, hard_margin

N, NESTED, TAU, MARGIN = 6, (2, 4, 8), 0.05, 0.2
Floats = NDArray[np.float64]


def batch(views: int = 3) -> ContrastiveBatch:
    draws = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, NESTED[-1], generator=draws, dtype=torch.float64)

    every = torch.ones(views, N, dtype=torch.bool)
    return ContrastiveBatch(
        drawn(N), drawn(views, N), drawn(views, N), every, every, torch.ones(N), torch.ones(N, N, dtype=torch.bool)
    )


def sim(a: Floats, b: Floats) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def literal_contrastive(q: Floats, views: Floats) -> float:
    """Eq. 5 to 8, sum by sum."""
    total = 0.0
    for d in views:
        for m in NESTED:
            q2d = d2q = 0.0
            for i in range(N):
                own = np.exp(sim(q[i, :m], d[i, :m]) / TAU)
                q2d -= np.log(own / sum(np.exp(sim(q[i, :m], d[j, :m]) / TAU) for j in range(N))) / N
                d2q -= np.log(own / sum(np.exp(sim(q[j, :m], d[i, :m]) / TAU) for j in range(N))) / N
            total += (q2d + d2q) / 2
    return total


def literal_hard(q: Floats, right: Floats, wrong: Floats) -> float:
    """Eq. 9 to 11, sum by sum."""
    return sum(
        max(0.0, MARGIN - sim(q[i, :m], one[i, :m]) + sim(q[i, :m], other[i, :m])) / N
        for one, other in zip(right, wrong, strict=True)
        for m in NESTED
        for i in range(len(q))
    )


def test_it_is_the_papers() -> None:
    one = batch()
    q, right, wrong = (part.numpy() for part in (one.queries, one.positives, one.negatives))
    assert float(contrastive(one, NESTED, TAU)) == pytest.approx(literal_contrastive(q, right), rel=1e-10)
    assert float(hard_margin(one, NESTED, MARGIN)) == pytest.approx(literal_hard(q, right, wrong), rel=1e-10)


def test_the_weight_of_a_pair_multiplies_its_losses() -> None:
    one = batch()
    weights = torch.linspace(0.2, 1.8, N, dtype=torch.float64)
    for loss in (
        lambda of: contrastive(of, NESTED, TAU),
        lambda of: hard_margin(of, NESTED, MARGIN),
    ):
        alone = [float(loss(replace(one, weight=torch.eye(N, dtype=torch.float64)[pair]))) for pair in range(N)]
        assert sum(alone) == pytest.approx(float(loss(one)), rel=1e-10)
        assert float(loss(replace(one, weight=weights))) == pytest.approx(float(weights @ torch.tensor(alone).double()))


def test_a_view_that_is_not_there_is_no_term() -> None:
    one = batch(views=1)
    there = one.has_view.clone()
    there[0, 2] = False
    lacking = replace(one, has_view=there)
    kept = torch.tensor([0, 1, 3, 4, 5])
    q, d = one.queries.numpy(), one.positives.numpy()[0]
    expected = 0.0
    for m in NESTED:
        logits = np.array([[sim(a[:m], b[:m]) / TAU for b in d] for a in q])
        for i in kept.tolist():
            q2d = np.log(np.exp(logits[i, kept]).sum()) - logits[i, i]  # no one's view is 2's
            d2q = np.log(np.exp(logits[:, i]).sum()) - logits[i, i]  # the query 2 is there
            expected += (q2d + d2q) / 2 / len(kept)
    assert float(contrastive(lacking, NESTED, TAU)) == pytest.approx(expected, rel=1e-10)
    five = ContrastiveBatch(*(part[..., kept, :] for part in (one.queries, one.positives, one.negatives)),
                    there[:, kept], one.against[:, kept], one.weight[:5], one.allowed[:5, :5])  # fmt: skip
    assert float(hard_margin(lacking, NESTED, MARGIN)) == pytest.approx(
        float(hard_margin(five, NESTED, MARGIN)), rel=1e-12
    )


def test_another_positive_of_a_query_is_no_negative_in_either_direction() -> None:
    one = batch(views=1)
    allowed = one.allowed.clone()
    allowed[0, 1] = False
    draws = torch.Generator().manual_seed(5)
    masked, queries = replace(one, allowed=allowed), one.queries.clone().requires_grad_()
    before = contrastive(replace(masked, queries=queries), NESTED, TAU)
    moved = one.positives.clone()
    moved[0, 1] = torch.randn(NESTED[-1], generator=draws, dtype=torch.float64)
    grad = torch.autograd.grad(before, queries)[0]
    other = replace(masked, queries=queries, positives=moved)
    changed = torch.autograd.grad(contrastive(other, NESTED, TAU), queries)[0]
    assert torch.allclose(grad[0], changed[0], rtol=1e-12), "query 0 does not see document 1"
    assert not torch.allclose(grad[2], changed[2])


def test_nothing_to_learn_from_is_no_nan() -> None:
    one = batch()
    nothing = torch.zeros_like(one.has_view)
    empty = replace(one, has_view=nothing, against=nothing, positives=torch.zeros_like(one.positives).requires_grad_())
    loss = contrastive(empty, NESTED, TAU) + hard_margin(empty, NESTED, MARGIN)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert empty.positives.grad is not None
    assert torch.isfinite(empty.positives.grad).all()


def test_a_hard_negative_without_the_view_is_no_term_of_the_margin_loss() -> None:
    one = batch(views=1)
    against = one.against.clone()
    against[0, 2] = False
    kept = torch.tensor([0, 1, 3, 4, 5])
    rows = [part[..., kept, :].numpy() for part in (one.queries, one.positives, one.negatives)]
    wanted = literal_hard(*rows) * N / len(kept)  # it divides by N
    assert float(hard_margin(replace(one, against=against), NESTED, MARGIN)) == pytest.approx(wanted, rel=1e-10)
