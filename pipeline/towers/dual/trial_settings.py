"""Settings of a trial of both towers; imports no torch, so that stages can list trials cheaply."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrialSettings:
    """Settings of a trial.

    Attributes:
        rate: peak learning rate; linear warm-up over a tenth of the steps, then linear decay to 0.
        temperature: τ.
        seed: of the order of triplets.
        keep_last: keep the last weights instead of the best.
    """

    rate: float
    temperature: float
    seed: int
    keep_last: bool = False
