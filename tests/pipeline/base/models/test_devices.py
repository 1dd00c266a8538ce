"""Which devices a setting names, and what a model lacks on them."""

from __future__ import annotations

import pytest

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.models.devices import devices, memory_problems, utilisation

torch = pytest.importorskip("torch")


class Card:
    """A GPU of 10 GB."""

    total_memory = 10_000_000_000


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _number: Card)


def test_auto_is_every_gpu_else_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 2)
    assert devices("auto") == ["cuda:0", "cuda:1"]
    assert devices("cuda:1") == ["cuda:1"]
    gpus(monkeypatch, 0)
    assert devices("auto") == ["cpu"]
    with pytest.raises(MissingPart, match="device cuda:1"):
        devices("cuda:1")
    assert utilisation() is None


def test_a_model_too_large_for_the_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 1)
    assert memory_problems("auto", 20_000_000_000) == ["about 20 GB of GPU memory: GPU 0 has 10 GB"]
    assert memory_problems("auto", 100_000_000) == []


@pytest.mark.parametrize(
    ("device", "needed", "lacks"),
    [
        ("cpu", 20e9, []),
        ("auto", 1e9, []),
        ("auto", 20e9, ["about 20 GB of GPU memory: PyTorch sees no GPU here"]),
        ("cuda", 0, ["a CUDA GPU: PyTorch sees no GPU here"]),
    ],
)
def test_without_a_gpu_a_large_model_lacks_one(
    device: str, needed: float, lacks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(monkeypatch, 0)
    assert memory_problems(device, int(needed)) == lacks


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 1)
    sees = "device cuda:1: PyTorch sees 1 CUDA GPU here, numbered from 0"
    with pytest.raises(MissingPart, match=sees):
        devices("cuda:1")
    assert memory_problems("cuda:1", 1) == [sees]
    assert devices("cuda") == ["cuda"]
    gpus(monkeypatch, 2)
    with pytest.raises(MissingPart, match="sees 2 CUDA GPUs"):
        devices("cuda:2")


def test_a_gpu_without_a_utilization_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class NotSupported(Exception):
        """NVML's errors have no base class of their own that torch converts."""

    def raises(_number: int) -> int:
        raise NotSupported

    gpus(monkeypatch, 1)
    monkeypatch.setattr(torch.cuda, "utilization", raises)
    assert utilisation() is None
