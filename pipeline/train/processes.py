"""Several processes of one training, as torchrun or accelerate start them: one leads and writes, others go along."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

PATIENCE = timedelta(days=7)
"""How long the others wait for the one that leads, which prepares and tests alone."""


def several() -> bool:
    """Whether there are others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def leads() -> bool:
    """Whether it is this one that leads; a single one does."""
    return int(os.environ.get("RANK", "0")) == 0


def mine(devices: Sequence[str]) -> str:
    """This process's device, of those of its host."""
    return devices[int(os.environ.get("LOCAL_RANK", "0")) % len(devices)]


def order(what: Any) -> None:
    """Tell the others what to go along with; None: nothing more. Alone there is nobody to tell."""
    if several():
        _broadcast(what)


def orders() -> Iterator[Any]:
    """What the one that leads tells the others, until there is nothing more."""
    while (what := _broadcast(None)) is not None:
        yield what


def wait() -> None:
    """Until all are here."""
    import torch.distributed as processes

    if processes.is_initialized():
        processes.barrier()


def _broadcast(what: Any) -> Any:
    """What the first process gives; each joins the others at the first time, and leaves them after nothing more."""
    import torch
    import torch.distributed as processes

    if not processes.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        processes.init_process_group(backend, timeout=PATIENCE)
    told = [what]
    processes.broadcast_object_list(told, src=0, device=torch.device("cpu"))
    if told[0] is None:
        processes.barrier()
        processes.destroy_process_group()
    return told[0]
