"""GPUs of this machine: devices, memory and utilization."""

from __future__ import annotations

import sys

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.models import INSTALL

_MAX_CPU_WEIGHT_BYTES = 4e9
"""Bytes of weights above which a model is too slow on a CPU."""


def devices(device: str) -> list[str]:
    """Devices of a setting: `auto` is every CUDA device of this host, else the CPU.

    Raises:
        MissingPart: torch is not installed, or the setting requires a GPU that is not there.
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
    if device.startswith("cuda") and _number(device) >= count:
        raise MissingPart(f"device {device}: {_number_of_gpus(count)}")
    return [device]


def memory_problems(device: str, needed: int) -> list[str]:
    """Why a model of `needed` bytes does not fit the setting `device`; empty if it fits."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    about = f"about {needed / 1e9:.0f} GB of GPU memory"
    if device == "cpu":
        return []
    if not count:
        needs_gpu = device != "auto" or needed > _MAX_CPU_WEIGHT_BYTES
        return [f"{about if needed else 'a CUDA GPU'}: PyTorch sees no GPU here"] if needs_gpu else []
    number = _number(device)
    if number >= count:
        return [f"device {device}: {_number_of_gpus(count)}"]
    has = torch.cuda.get_device_properties(number).total_memory
    return [f"{about}: GPU {number} has {has / 1e9:.0f} GB"] if needed > has else []


def _number(device: str) -> int:
    """Number of a CUDA device; 0 for `cuda` and `auto`."""
    return int(device.partition(":")[2] or 0)


def _number_of_gpus(count: int) -> str:
    return f"PyTorch sees {count} CUDA {'GPU' if count == 1 else 'GPUs'} here, numbered from 0"


def utilisation() -> float | None:
    """Mean utilization of the CUDA devices, 0 to 1.

    None without a GPU, before torch is loaded, without the package nvidia-ml-py, or if the driver does not report it.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    try:
        shares = [torch.cuda.utilization(number) for number in range(torch.cuda.device_count())]
    except Exception:  # NVML's errors (a MIG slice has no utilization) are only importable with nvidia-ml-py
        return None
    return float(sum(shares) / len(shares) / 100)
