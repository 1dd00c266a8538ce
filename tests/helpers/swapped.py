"""Two encoders whose spaces are a known map apart, and a model swap between two tiny BERTs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from darklode.flows.jobs.swap_model import swap_model
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.types import Floats
from darklode.pipeline.model_swap.vectors import PairedVectors, SwapVectors
from helpers.adapted import build_to_adapt
from helpers.tiny_bert import tiny_bert

SIDES = {"train": 160, "validation": 30, "test": 20}


def unit(vectors: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Floats:
    """Rows of length 1."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def rotation(size: int, seed: int = 3) -> Floats:
    """A random orthogonal matrix."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0].astype(np.float32)


def pairs(n: int, transform: Floats, seed: int, noise: float = 0.0) -> PairedVectors:
    """Old unit vectors at random; the new ones are a linear transform of them, with noise."""
    random = np.random.default_rng(seed)
    old = unit(random.standard_normal((n, transform.shape[1])))
    new = old @ transform.T + noise * random.standard_normal((n, len(transform)))
    return PairedVectors(unit(new), old)


def swap_vectors(transform: Floats, *, documents: int = 300, noise: float = 0.0) -> SwapVectors:
    """Documents, half of which are fitted on, 80 training and 40 validation queries."""
    return SwapVectors(
        pairs(documents, transform, 1, noise),
        np.arange(documents // 2),
        pairs(80, transform, 2, noise),
        pairs(40, transform, 4, noise),
    )


@dataclass(frozen=True)
class SwappedRun:
    """A run, two models and the folder of a swap between them.

    Attributes:
        root: has the folders `run`, `new`, `old` and `out`.
        sentence: the decision.
    """

    root: Path
    sentence: str

    @property
    def out(self) -> Run:
        """The folder of the swap."""
        return Run(str(self.root / "out"))

    def swap(self, out: str = "out", **options: float) -> str:
        """Run the job."""
        paths = (str(self.root / name) for name in ("run", "new", "old", out))
        return swap_model(*paths, **options)  # type: ignore[arg-type]


def swapped_run(root: Path) -> SwappedRun:
    """A swap from 12 to 8 numbers, released whatever it finds."""
    build_to_adapt(root / "run", SIDES)
    tiny_bert(root / "old")
    tiny_bert(root / "new", hidden_size=12)
    return SwappedRun(root, SwappedRun(root, "").swap(min_share=0.0))
