"""Settings of one trial of both towers; a module of its own, so that stages can list trials without importing torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrialSettings:
    """Settings of one training run of both towers.

    Attributes:
        rate: peak learning rate; linear warm-up over a tenth of the steps, then linear decay to 0.
        temperature: τ of the contrastive loss.
        seed: seed of the order of triplets.
        keep_last: keep the last weights instead of those of the best evaluation.
    """

    rate: float
    temperature: float
    seed: int
    keep_last: bool = False
