"""Distributed training under torchrun or accelerate: the leader writes, the other processes follow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from darklode.pipeline.base.errors import SettingsError

TIMEOUT = timedelta(days=7)
"""How long followers wait for the leader, which prepares and evaluates alone."""


SHARDING_VARIABLES = {"ACCELERATE_USE_FSDP": "FSDP", "ACCELERATE_USE_DEEPSPEED": "DeepSpeed"}
"""Environment variables of accelerate that mean a model is sharded over processes."""


def require_unsharded() -> None:
    """Refuse sharded models, which training here does not support.

    Raises:
        SettingsError: accelerate is configured for one.
    """
    for name, kind in SHARDING_VARIABLES.items():
        if os.environ.get(name, "").lower() == "true":
            raise SettingsError(
                f"{kind} is configured in accelerate: each process needs both towers in full; set "
                "distributed_type MULTI_GPU or MULTI_CPU, and for less memory dual.method lora and "
                "dual.gradient_checkpointing"
            )


def is_distributed() -> bool:
    """Whether there are other processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_leader() -> bool:
    """Whether this process leads; a single process does."""
    return int(os.environ.get("RANK", "0")) == 0


def uses_cpu() -> bool:
    """Whether accelerate is configured for the CPU (`use_cpu`), whatever GPUs there are."""
    return os.environ.get("ACCELERATE_USE_CPU", "").lower() in {"1", "true"}


def own_device(devices: Sequence[str]) -> str:
    """This process's device among those of its host; the CPU if accelerate is configured for it."""
    if uses_cpu():
        return "cpu"
    return devices[int(os.environ.get("LOCAL_RANK", "0")) % len(devices)]


def broadcast_work_item(item: Any) -> None:
    """Send the followers their next work item; None means there is no more. Without followers it does nothing."""
    if is_distributed():
        _broadcast(item)


def work_items() -> Iterator[Any]:
    """The leader's work items until there are no more."""
    while (item := _broadcast(None)) is not None:
        yield item


def wait_for_all() -> None:
    """Barrier over all processes."""
    import torch.distributed as processes

    if processes.is_initialized():
        processes.barrier()


def _broadcast(item: Any) -> Any:
    """Broadcast from the first process; joins the process group on first use and leaves it after None."""
    import torch
    import torch.distributed as processes

    if not processes.is_initialized():
        has_gpu = torch.cuda.is_available() and not uses_cpu()
        if has_gpu:  # NCCL's barrier uses the current device
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        processes.init_process_group("cpu:gloo,cuda:nccl" if has_gpu else "gloo", timeout=TIMEOUT)
    objects = [item]
    processes.broadcast_object_list(objects, src=0, device=torch.device("cpu"))
    if objects[0] is None:
        processes.barrier()
        processes.destroy_process_group()
    return objects[0]
