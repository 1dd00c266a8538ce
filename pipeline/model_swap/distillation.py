"""Listwise distillation of a map: mapped queries rank the old vectors as the new encoder ranks its own.

The loss is KL(softmax(new scores) ‖ softmax(mapped scores)) over the fitted documents, for training queries and, if
asked, for documents as queries. Source: Cao et al. 2007 (ListNet); Hinton et al. 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from darklode.pipeline.base.types import Floats
from darklode.pipeline.model_swap.vectors import SwapVectors
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.types import Layers

QUERIES_PER_STEP, DOCUMENTS_PER_STEP = 128, 2048
MAX_STEPS, EVAL_STEPS, PATIENCE = 1500, 75, 3
"""Training stops early after `PATIENCE` evaluations without a better validation value."""

INVERSE_TEMPERATURE = 3.0
"""Factor of a query's standardized scores. The softmax of many normal scores has its mass near this number of standard
deviations above the mean, and 3 is where the best of a thousand documents are."""

SAME_TEXT = 0.9999
"""Cosine above which a document used as query is taken to be the document itself."""

EXCLUDED = -1e4
"""Logit of an excluded document; finite, because 0 · −inf has no gradient."""


class ResidualMap(nn.Module):
    """q → W·q + b + V·GELU(U·q + c); without hidden units the linear map alone. V starts as 0.

    Args:
        initial: a linear map to start from.
        hidden: number of hidden units.
    """

    def __init__(self, initial: Layers, hidden: int) -> None:
        super().__init__()
        ((weights, bias),) = initial
        self.linear = nn.Linear(weights.shape[1], weights.shape[0])
        self.hidden = nn.Linear(weights.shape[1], hidden) if hidden else None
        self.output = nn.Linear(hidden, weights.shape[0], bias=False) if hidden else None
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(weights))
            self.linear.bias.copy_(torch.from_numpy(bias))
            if self.output is not None:
                self.output.weight.zero_()

    def forward(self, vectors: Tensor) -> Tensor:
        """Mapped vectors, not normalized."""
        mapped: Tensor = self.linear(vectors)
        if self.hidden is not None and self.output is not None:
            mapped = mapped + self.output(functional.gelu(self.hidden(vectors)))
        return mapped

    def layers(self) -> Layers:
        """The same as plain layers with GELU between them; GELU(x) − GELU(−x) = x carries the linear part along."""
        weights, bias = (tensor.detach().numpy().copy() for tensor in (self.linear.weight, self.linear.bias))
        if self.hidden is None or self.output is None:
            return [(weights, bias)]
        inner, inner_bias, outer = (
            tensor.detach().numpy() for tensor in (self.hidden.weight, self.hidden.bias, self.output.weight)
        )
        eye = np.eye(len(weights), dtype=np.float32)
        first = np.concatenate([inner, weights, -weights]), np.concatenate([inner_bias, bias, -bias])
        return [first, (np.concatenate([outer, eye, -eye], axis=1), np.zeros(len(weights), np.float32))]


@dataclass(frozen=True)
class DistillationSettings:
    """What differs between trials.

    Attributes:
        hidden: number of hidden units; 0: a linear map.
        documents_as_queries: half of each step's queries are documents.
        learning_rate: of Adam.
        seed: seed of weights and order.
    """

    hidden: int
    documents_as_queries: bool
    learning_rate: float
    seed: int


def distill(
    initial: Layers,
    vectors: SwapVectors,
    settings: DistillationSettings,
    evaluate: Callable[[Layers], float],
) -> tuple[Layers, int]:
    """Train a map; returns the layers with the best validation value, and their step (0: the initial map).

    Args:
        initial: a linear map.
        vectors: training queries and documents.
        settings: see `DistillationSettings`.
        evaluate: validation value of layers; higher is better.
    """
    with deterministic(settings.seed):
        model = ResidualMap(initial, settings.hidden)
        best, best_step, best_value = model.layers(), 0, evaluate(initial)
        documents = vectors.documents.take(vectors.fitted).encoded_by_both()
        new, old = torch.from_numpy(documents.new), torch.from_numpy(documents.old)
        scale = nn.Parameter(torch.tensor(_initial_scale(model, vectors.train.new, old)))
        optimizer = torch.optim.Adam([*model.parameters(), scale], settings.learning_rate)
        random = np.random.default_rng(settings.seed)
        for step in range(1, MAX_STEPS + 1):
            rows = torch.from_numpy(random.permutation(len(new))[:DOCUMENTS_PER_STEP])
            queries = torch.from_numpy(_batch(vectors, documents.new, random, settings.documents_as_queries))
            loss = _loss(model(queries) @ old[rows].T * scale.exp(), queries @ new[rows].T)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step % EVAL_STEPS == 0:
                layers = model.layers()
                value = evaluate(layers)
                if value > best_value:
                    best, best_step, best_value = layers, step, value
                if step - best_step >= PATIENCE * EVAL_STEPS:
                    break
    return best, best_step


def _batch(vectors: SwapVectors, documents: Floats, random: np.random.Generator, documents_as_queries: bool) -> Floats:
    n_documents = QUERIES_PER_STEP // 2 if documents_as_queries else 0
    queries = vectors.train.new
    rows = random.integers(0, len(queries), QUERIES_PER_STEP - n_documents)
    return np.concatenate([queries[rows], documents[random.integers(0, len(documents), n_documents)]])


def _loss(mapped_scores: Tensor, new_scores: Tensor) -> Tensor:
    """Cross-entropy of the two distributions over documents, without the document that is the query itself."""
    is_itself = new_scores > SAME_TEXT
    spread = new_scores.std(dim=1, keepdim=True).clamp_min(1e-6)
    standardized = INVERSE_TEMPERATURE * (new_scores - new_scores.mean(dim=1, keepdim=True)) / spread
    target = functional.softmax(standardized.masked_fill(is_itself, EXCLUDED), 1)
    return -(target * functional.log_softmax(mapped_scores.masked_fill(is_itself, EXCLUDED), 1)).sum(dim=1).mean()


def _initial_scale(model: ResidualMap, queries: Floats, old: Tensor) -> float:
    """Logarithm of the factor that gives mapped scores the spread of the target's."""
    with torch.no_grad():
        scores = model(torch.from_numpy(queries[:QUERIES_PER_STEP])) @ old[:DOCUMENTS_PER_STEP].T
    return float(np.log(INVERSE_TEMPERATURE / max(float(scores.std(dim=1).mean()), 1e-6)))
