"""How busy this machine's GPUs are, where that can be told."""

from __future__ import annotations

import sys


def utilisation() -> float | None:
    """Share of the last moments in which the CUDA devices computed, 0 to 1, their mean.

    Null without a GPU, before torch is loaded, or without the package nvidia-ml-py.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    try:
        shares = [torch.cuda.utilization(number) for number in range(torch.cuda.device_count())]
    except (ImportError, RuntimeError):
        return None
    return float(sum(shares) / len(shares) / 100)
