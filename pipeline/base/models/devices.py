"""The GPUs of this machine: which there are, how much memory they have, and how busy they are."""

from __future__ import annotations

import sys

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.models import INSTALL

_NEEDS_GPU = 4e9
"""A model with more bytes of weights than this is too slow on a CPU to be meant."""


def devices(device: str) -> list[str]:
    """The devices that a setting names: `auto` is every CUDA device of this host, else the CPU.

    Raises:
        MissingPart: torch is not installed, or a GPU is named and there is none.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingPart(f"device {device} needs torch: {INSTALL}") from error
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.startswith("cuda") and not count:
        raise MissingPart(f"device {device}: PyTorch sees no CUDA GPU here; set device: cpu, or install its CUDA build")
    if device == "auto":
        return [f"cuda:{number}" for number in range(count)] or ["cpu"]
    return [device]


def lacks_memory(device: str, needed: int) -> list[str]:
    """What the setting `device` lacks for a model that takes so many bytes; empty where nothing does."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    about = f"about {needed / 1e9:.0f} GB of GPU memory"
    if device == "cpu":
        return []
    if not count:
        needs_gpu = device != "auto" or needed > _NEEDS_GPU
        return [f"{about if needed else 'a CUDA GPU'}: PyTorch sees no GPU here"] if needs_gpu else []
    number = int(device.partition(":")[2] or 0) if device != "auto" else 0
    has = torch.cuda.get_device_properties(number).total_memory
    return [f"{about}: GPU {number} has {has / 1e9:.0f} GB"] if needed > has else []


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
