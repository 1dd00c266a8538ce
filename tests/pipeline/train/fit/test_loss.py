"""The loss against sentence-transformers' own, and against its formula."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch.nn import functional

from darklode.pipeline.train.fit.batches import Batch
from darklode.pipeline.train.fit.loss import batch_loss, divergence, info_nce, squared_shift
from darklode.schemas.adaptation import AdaptSettings


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    drawn = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return functional.normalize(torch.from_numpy(drawn), dim=-1)


def test_it_is_multiple_negatives_ranking_loss_at_the_same_numbers() -> None:
    queries, right, wrong = unit(6, 8), unit(6, 8, seed=1), unit(6, 3, 8, seed=2)
    theirs = MultipleNegativesRankingLoss(torch.nn.Identity(), scale=10.0)  # type: ignore[arg-type]
    columns = [queries, right, *(wrong[:, place] for place in range(3))]
    wanted = theirs.compute_loss_from_embeddings(columns, None)
    candidates = torch.cat([right, wrong.reshape(-1, 8)])
    found = info_nce(queries, candidates, torch.arange(6), torch.ones(6, 24, dtype=torch.bool), 0.1)
    assert found.mean().item() == pytest.approx(wanted.item(), abs=1e-6)


def test_what_is_not_allowed_does_not_count() -> None:
    queries, candidates = unit(1, 8), unit(3, 8, seed=1)
    allowed = torch.tensor([[True, True, False]])
    scores = (queries @ candidates.T / 0.1)[0]
    wanted = -torch.log(torch.exp(scores[0]) / (torch.exp(scores[0]) + torch.exp(scores[1])))
    assert info_nce(queries, candidates, torch.tensor([0]), allowed, 0.1).mean().item() == pytest.approx(
        wanted.item(), abs=1e-5
    )


def test_away_is_the_mean_squared_distance() -> None:
    queries, base = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert squared_shift(queries, base).mean().item() == pytest.approx(1.0)


def test_the_divergence_is_scipys_and_of_one_candidate_infonce() -> None:
    queries, candidates, allowed = unit(2, 8), unit(4, 8, seed=1), torch.ones(2, 4, dtype=torch.bool)
    allowed[0, 3] = False
    target = torch.tensor([[0.75, 0.25, 0, 0], [0, 0.8, 0.1, 0.1]])
    scores = (queries @ candidates.T / 0.1).masked_fill(~allowed, -1e9)
    wanted = np.mean([entropy(aim, row) for aim, row in zip(target, scores.softmax(dim=1), strict=True)])
    assert divergence(queries, candidates, target, allowed, 0.1).mean().item() == pytest.approx(wanted, abs=1e-5)
    one = functional.one_hot(torch.tensor([1, 2]), 4).float()
    hard = info_nce(queries, candidates, torch.tensor([1, 2]), allowed, 0.1)
    assert divergence(queries, candidates, one, allowed, 0.1).mean().item() == pytest.approx(
        hard.mean().item(), abs=1e-6
    )


@pytest.mark.parametrize("soft", [False, True])
def test_a_weight_multiplies_the_loss_but_not_the_distance_to_the_anchor(soft: bool) -> None:
    queries, base, texts = unit(4, 8), unit(4, 8, seed=1).numpy(), unit(6, 8, seed=2).numpy()
    target = np.full((4, 6), 1 / 6, np.float32) if soft else None
    batch = Batch(base, base, texts, np.ones((4, 6), bool), target)
    weighted = replace(batch, weight=np.array([0.5, 1.0, 2.0, 0.25], np.float32))
    free = AdaptSettings(l2_to_base=0)
    held = AdaptSettings(l2_to_base=0.5)
    unweighted, anchored = batch_loss(queries, batch, free), batch_loss(queries, batch, held)
    torch.testing.assert_close(
        batch_loss(queries, weighted, held), unweighted * torch.tensor([0.5, 1.0, 2.0, 0.25]) + (anchored - unweighted)
    )
    part = batch_loss(queries[2:], weighted, held, first=2)
    torch.testing.assert_close(part, batch_loss(queries, weighted, held)[2:])
    ones = replace(batch, weight=np.ones(4, np.float32))
    assert torch.equal(batch_loss(queries, ones, held), anchored)
