"""The trainer of sentence-transformers with a custom loss: the part shared by every training of an encoder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as processes
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Ints
from darklode.pipeline.train.fit.loop import LONGEST, LOOK


class BatchPlan(Protocol):
    """Decides which rows make up each batch.

    Attributes:
        size: rows of a batch over all processes.
    """

    size: int

    def next(self) -> Ints:
        """Rows of the next batch."""


@dataclass(frozen=True)
class BatchSteps:
    """How many steps there are and what they read.

    Attributes:
        count: maximum number of steps.
        turns: the batches.
        setting: name of the setting that sets the batch size, for errors.
        seed: of the trainer's own draws.
        report_to: as `report_to` of transformers.
    """

    count: int
    turns: BatchPlan
    setting: str
    seed: int
    report_to: Sequence[str] = ()


@dataclass(frozen=True)
class Training:
    """What a step computes and what happens between steps.

    Attributes:
        rows: the training rows.
        tokens: collates rows of the column `label`.
        loss: of a batch.
        goes_on: called with the steps done, before the first step and after each; returns whether to continue.
        optimiser: of the trained parameters.
        schedule: of the learning rate.
    """

    rows: int
    tokens: Any
    loss: nn.Module
    goes_on: Callable[[int], bool]
    optimiser: torch.optim.Optimizer
    schedule: Any


def fit(model: Any, steps: BatchSteps, training: Training) -> None:
    """Train a loaded sentence-transformers model in place; does nothing if no step is left.

    Under torchrun each process encodes its share of every batch; the steps equal those of a single process.

    Args:
        model: the model; gradients are clipped to norm 1.
        steps: number of steps and their batches.
        training: loss and callbacks.

    Raises:
        SettingsError: the batch size is not divisible by the number of processes.
    """
    if not steps.count:
        return
    with tempfile.TemporaryDirectory(prefix="darklode-train-") as scratch:
        arguments = _arguments(scratch, steps, str(model.device))
        if steps.turns.size % arguments.world_size:
            raise SettingsError(
                f"{steps.setting}: {steps.turns.size} queries a step cannot be shared evenly by {arguments.world_size} "
                "processes"
            )
        batches = _Batches(steps, arguments.world_size)
        arguments.batch_sampler = lambda *_, **__: batches
        _trainer(model, training, arguments).train()


def _arguments(scratch: str, steps: BatchSteps, device: str) -> Any:
    from sentence_transformers import SentenceTransformerTrainingArguments

    arguments = SentenceTransformerTrainingArguments(
        scratch,
        max_steps=steps.count,
        per_device_train_batch_size=steps.turns.size,
        max_grad_norm=LONGEST,
        seed=steps.seed,
        use_cpu=device == "cpu",
        bf16=device.startswith("cuda") and torch.cuda.is_bf16_supported(),
        dataloader_pin_memory=device != "cpu",
        save_strategy="no",
        logging_strategy="steps" if steps.report_to else "no",
        logging_steps=LOOK,
        report_to=list(steps.report_to) or "none",
        disable_tqdm=True,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # several GPUs are several processes: copies in threads would draw apart
    return arguments


def _trainer(model: Any, training: Training, arguments: Any) -> Any:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer
    from transformers import PrinterCallback, TrainerCallback

    class Rhythm(TrainerCallback):
        """Callback that asks before the first step and after each whether to continue."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            control.should_training_stop = not training.goes_on(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            control.should_training_stop = not training.goes_on(state.global_step)

    class Trainer(SentenceTransformerTrainer):
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """Disabled, because Darklode writes its own card."""

    trainer = Trainer(
        model,
        arguments,
        Dataset.from_dict({"label": list(range(training.rows))}),
        loss=training.loss,
        data_collator=training.tokens,
        callbacks=[Rhythm()],
        optimizers=(training.optimiser, training.schedule),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class _Batches(BatchSampler):
    """Yields the rows of each batch; with n processes each takes every n-th row."""

    def __init__(self, steps: BatchSteps, parts: int) -> None:
        super().__init__(range(0), steps.turns.size // parts, drop_last=True)
        self._steps, self._parts = steps, parts

    def __len__(self) -> int:
        return self._steps.count * self._parts

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self._steps.count):
            for part in np.split(self._steps.turns.next(), self._parts):
                yield part.tolist()


class QueryCollator:
    """Tokenizes the texts of a batch.

    Args:
        features: tokenizes texts.
        texts: returns the texts of some rows.
    """

    valid_label_columns = ("label",)

    def __init__(
        self, features: Callable[[list[str]], dict[str, Tensor]], texts: Callable[[list[int]], Iterable[str]]
    ) -> None:
        self._features, self._texts = features, texts

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Tensor]:
        labels = [row["label"] for row in rows]
        features = {f"query_{name}": value for name, value in self._features(list(self._texts(labels))).items()}
        return features | {"label": torch.tensor(labels)}


def of_all(loss: Tensor) -> Tensor:
    """Mean over all processes."""
    if processes.is_initialized():
        processes.all_reduce(loss)
        loss /= processes.get_world_size()
    return loss
