"""Several processes of one training, as torchrun or accelerate start them: one leads and writes, others go along."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from darklode.pipeline.base.errors import SettingsError

PATIENCE = timedelta(days=7)
"""How long the others wait for the one that leads, which prepares and tests alone."""


SHARED_OUT = {"ACCELERATE_USE_FSDP": "FSDP", "ACCELERATE_USE_DEEPSPEED": "DeepSpeed"}
"""What accelerate sets where its configuration asks for a model that no process holds whole."""


def demand_whole() -> None:
    """Refuse what training here does not know: models whose numbers are shared out among processes.

    Raises:
        SettingsError: accelerate is told to do so.
    """
    for name, kind in SHARED_OUT.items():
        if os.environ.get(name, "").lower() == "true":
            raise SettingsError(
                f"{kind} is in accelerate's configuration: here each process holds both towers whole; take "
                "distributed_type MULTI_GPU or MULTI_CPU, and for less memory dual.method lora and dual.checkpointing"
            )


def several() -> bool:
    """Whether there are others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_leader() -> bool:
    """Whether it is this one that leads; a single one does."""
    return int(os.environ.get("RANK", "0")) == 0


def mine(devices: Sequence[str]) -> str:
    """This process's device, of those of its host."""
    return devices[int(os.environ.get("LOCAL_RANK", "0")) % len(devices)]


def broadcast_order(item: Any) -> None:
    """Tell the others what to go along with; None: nothing more. Alone there is nobody to tell."""
    if several():
        _broadcast(item)


def orders() -> Iterator[Any]:
    """What the one that leads tells the others, until there is nothing more."""
    while (item := _broadcast(None)) is not None:
        yield item


def wait_for_all() -> None:
    """Until all are here."""
    import torch.distributed as processes

    if processes.is_initialized():
        processes.barrier()


def _broadcast(item: Any) -> Any:
    """What the first process gives; each joins the others at the first time, and leaves them after nothing more."""
    import torch
    import torch.distributed as processes

    if not processes.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        processes.init_process_group(backend, timeout=PATIENCE)
    objects = [item]
    processes.broadcast_object_list(objects, src=0, device=torch.device("cpu"))
    if objects[0] is None:
        processes.barrier()
        processes.destroy_process_group()
    return objects[0]
