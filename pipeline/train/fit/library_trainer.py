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
from darklode.pipeline.train.fit.trial import MAX_GRAD_NORM, Trial

LOGGING_STEPS = 50
"""Steps between two lines to `report_to`."""


class BatchPlan(Protocol):
    """Decides which rows make up each batch.

    Attributes:
        size: rows of a batch over all processes.
    """

    size: int

    def next(self) -> Ints:
        """Rows of the next batch."""


@dataclass(frozen=True)
class LibraryTraining:
    """What the trainer needs besides the model and its trial.

    Attributes:
        n_rows: number of training rows.
        collator: collates rows of the column `label`.
        loss: of a batch.
        batches: rows of each batch.
        batch_setting: name of the setting of the batch size, for errors.
        optimizer: of the trained parameters.
        schedule: of the learning rate.
        seed: of the trainer's own draws.
        report_to: as in transformers.
    """

    n_rows: int
    collator: Any
    loss: nn.Module
    batches: BatchPlan
    batch_setting: str
    optimizer: torch.optim.Optimizer
    schedule: Any
    seed: int
    report_to: Sequence[str] = ()


def fit(model: Any, trial: Trial[Any], training: LibraryTraining) -> None:
    """Train a loaded sentence-transformers model in place; does nothing if no step is left.

    Under torchrun each process encodes its share of every batch; the steps equal those of a single process.

    Args:
        model: the model; gradients are clipped to `MAX_GRAD_NORM`.
        trial: evaluates between the steps, and decides whether another one follows.
        training: loss, batches and optimizer.

    Raises:
        SettingsError: the batch size is not divisible by the number of processes.
    """
    steps = trial.steps - trial.first_step
    if not steps:
        return
    with tempfile.TemporaryDirectory(prefix="darklode-train-") as scratch:
        arguments = _arguments(scratch, steps, training, str(model.device))
        size, n_processes = training.batches.size, arguments.world_size
        if size % n_processes:
            raise SettingsError(
                f"{training.batch_setting}: {size} rows per step cannot be split evenly over {n_processes} processes"
            )
        batches = _Batches(training.batches, steps, n_processes)
        arguments.batch_sampler = lambda *_, **__: batches
        _trainer(model, trial, training, arguments).train()


def _arguments(scratch: str, steps: int, training: LibraryTraining, device: str) -> Any:
    from sentence_transformers import SentenceTransformerTrainingArguments

    arguments = SentenceTransformerTrainingArguments(
        scratch,
        max_steps=steps,
        per_device_train_batch_size=training.batches.size,
        max_grad_norm=MAX_GRAD_NORM,
        seed=training.seed,
        use_cpu=device == "cpu",
        bf16=device.startswith("cuda") and torch.cuda.is_bf16_supported(),
        dataloader_pin_memory=device != "cpu",
        save_strategy="no",
        logging_strategy="steps" if training.report_to else "no",
        logging_steps=LOGGING_STEPS,
        report_to=list(training.report_to) or "none",
        disable_tqdm=True,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # several GPUs are several processes: copies in threads would draw apart
    return arguments


def _trainer(model: Any, trial: Trial[Any], training: LibraryTraining, arguments: Any) -> Any:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer
    from transformers import PrinterCallback, TrainerCallback

    class TrialBridge(TrainerCallback):
        """Runs the trial before the first step and after each."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            control.should_training_stop = not trial.after_step(trial.first_step + state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            control.should_training_stop = not trial.after_step(trial.first_step + state.global_step)

    class Trainer(SentenceTransformerTrainer):
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """Disabled, because Darklode writes its own card."""

    trainer = Trainer(
        model,
        arguments,
        Dataset.from_dict({"label": list(range(training.n_rows))}),
        loss=training.loss,
        data_collator=training.collator,
        callbacks=[TrialBridge()],
        optimizers=(training.optimizer, training.schedule),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class _Batches(BatchSampler):
    """Yields the rows of each batch; with n processes each takes every n-th row."""

    def __init__(self, batches: BatchPlan, steps: int, n_processes: int) -> None:
        super().__init__(range(0), batches.size // n_processes, drop_last=True)
        self._batches, self._steps, self._n_processes = batches, steps, n_processes

    def __len__(self) -> int:
        return self._steps * self._n_processes

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self._steps):
            for part in np.split(self._batches.next(), self._n_processes):
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


def mean_over_processes(loss: Tensor) -> Tensor:
    if processes.is_initialized():
        processes.all_reduce(loss)
        loss /= processes.get_world_size()
    return loss
