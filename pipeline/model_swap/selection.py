"""Fit all maps and select one on the validation queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from darklode.pipeline.model_swap.maps import RANKS, RIDGES, low_rank, procrustes, ridge, score_regression
from darklode.pipeline.model_swap.recall import CUTOFFS, share_found
from darklode.pipeline.model_swap.vectors import PairedVectors, SwapVectors, search
from darklode.pipeline.train.types import Layers

SAMPLE_SIZES = (1000, 10_000)
"""Numbers of documents to fit on; the last is the maximum."""

HIDDEN_UNITS = 512
LEARNING_RATE = 1e-3
"""Of Adam; weights of maps between unit vectors are about 1/√dimensions, fifty times as large."""

MIXES = ("queries", "queries and documents")

METHODS = ("procrustes", "ridge", "low rank", "score regression", "distilled", "mlp")
"""In this order, earlier ones win ties."""


@dataclass(frozen=True, eq=False)
class MapTrial:
    """A fitted map.

    Attributes:
        method: one of `METHODS`.
        setting: what was tried, in words.
        layers: see `maps`.
        recall_10, recall_100: share of the new encoder's own first 10 and 100 that it finds, mean over validation
            queries.
    """

    method: str
    setting: str
    layers: Layers
    recall_10: float
    recall_100: float

    @property
    def rank(self) -> tuple[float, float]:
        """Larger is better."""
        return self.recall_10, self.recall_100


class Validation:
    """Validation queries with the lists that re-embedding would give them.

    Args:
        vectors: documents and validation queries.
    """

    def __init__(self, vectors: SwapVectors) -> None:
        self._vectors = vectors
        self._reference = search(vectors.validation.new, vectors.documents.new, max(CUTOFFS))

    def recall(self, layers: Layers) -> tuple[float, float]:
        """Mean share of the first 10 and 100 that mapped queries find; 0 without queries."""
        from darklode.pipeline.train.fit.heads import apply_layers

        mapped = apply_layers(layers, self._vectors.validation.new)
        results = search(mapped, self._vectors.documents.old, max(CUTOFFS))
        shares = [share_found(results, self._reference, k) for k in CUTOFFS]
        at_10, at_100 = (float(np.nanmean(share)) if not np.isnan(share).all() else 0.0 for share in shares)
        return at_10, at_100

    def trial(self, method: str, setting: str, layers: Layers) -> MapTrial:
        """A fitted map with its values."""
        return MapTrial(method, setting, layers, *self.recall(layers))


def fit_maps(vectors: SwapVectors, seed: int, on_trial: Callable[[MapTrial], None] | None = None) -> list[MapTrial]:
    """Fit all maps; the trials of each method follow one another.

    Args:
        vectors: documents, training and validation queries; at least one training query or fitted document that both
            encoders give a vector.
        seed: seed of the trained maps.
        on_trial: called after each trial.
    """
    validation, trials = Validation(vectors), list[MapTrial]()
    for fitted in (_linear_trials, _trained_trials):
        for trial in fitted(vectors, validation, trials, seed):
            trials.append(trial)
            if on_trial:
                on_trial(trial)
    return trials


def best_trial(trials: list[MapTrial], method: str | None = None) -> MapTrial:
    """The first of the best trials, of a method if one is named."""
    return max((trial for trial in trials if method in {None, trial.method}), key=lambda trial: trial.rank)


def pair_groups(vectors: SwapVectors) -> Iterator[tuple[str, list[PairedVectors]]]:
    """Groups of pairs to fit on: queries, documents, and both with equal weight."""
    queries = vectors.train.encoded_by_both()
    if len(queries):
        yield f"{len(queries):,} queries", [queries]
    n_fitted = len(vectors.fitted)
    for size in sorted({min(size, n_fitted) for size in SAMPLE_SIZES}):
        documents = vectors.training_documents(size).encoded_by_both()
        if len(documents):
            yield f"{len(documents):,} documents", [documents]
            if len(queries):
                yield f"{len(queries):,} queries and {len(documents):,} documents", [queries, documents]


def _linear_trials(
    vectors: SwapVectors, validation: Validation, trials: list[MapTrial], _seed: int
) -> Iterator[MapTrial]:
    groups = list(pair_groups(vectors))
    for name, parts in groups:
        for centered in (False, True):
            setting = f"{name}, {'means removed' if centered else 'no bias'}"
            yield validation.trial("procrustes", setting, procrustes(parts, centered=centered))
    settings = {}
    for name, parts in groups:
        for strength in RIDGES:
            settings[f"{name}, ridge {strength:g}"] = (parts, strength)
            yield validation.trial("ridge", f"{name}, ridge {strength:g}", ridge(parts, strength))
    best_setting = best_trial(trials, "ridge").setting
    for rank in RANKS:
        layers = low_rank(*settings[best_setting], rank)
        yield validation.trial("low rank", f"{best_setting}, rank {rank}", layers)
    for size in sorted({min(size, len(vectors.fitted)) for size in SAMPLE_SIZES}):
        documents = vectors.training_documents(size)
        for strength in RIDGES if len(documents.encoded_by_both()) else ():
            setting = f"{size:,} documents, ridge {strength:g}"
            yield validation.trial("score regression", setting, score_regression(documents, strength))


def _trained_trials(
    vectors: SwapVectors, validation: Validation, trials: list[MapTrial], seed: int
) -> Iterator[MapTrial]:
    """Distilled maps: without and with hidden units, from the best linear map."""
    from darklode.pipeline.model_swap.distillation import DistillationSettings, distill

    if not len(vectors.train.encoded_by_both()) or not len(vectors.fitted):
        return
    initial = best_trial(trials)

    def distilled(method: str, hidden: int, documents_as_queries: bool) -> MapTrial:
        settings = DistillationSettings(hidden, documents_as_queries, LEARNING_RATE, seed)
        layers, step = distill(initial.layers, vectors, settings, lambda layers: validation.recall(layers)[0])
        mix = MIXES[documents_as_queries]
        return validation.trial(method, f"{mix}, {step} steps from: {initial.method}", layers)

    linear = [distilled("distilled", 0, mix) for mix in (False, True)]
    yield from linear
    yield distilled("mlp", HIDDEN_UNITS, best_trial(linear) is linear[1])
