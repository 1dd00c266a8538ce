"""Runs the sentence-transformers trainer with Darklode's own batches, loss and evaluation.

Shared by `adapt` (encoder methods), `distill`, the joint training of both towers, and rerankers. A `BatchPlan` picks
the rows of each step, a collator tokenizes them, and a `Trial` evaluates between the steps and decides when to stop.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.distributed as processes
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Ints
from darklode.pipeline.train.fit.trial import MAX_GRAD_NORM, Trial

LOGGING_STEPS = 50
"""Steps between two log entries sent to `report_to` (for example TensorBoard); has no effect on the weights."""


class BatchPlan(Protocol):
    """Decides which rows make up each batch.

    Attributes:
        size: number of rows in a batch, summed over all processes.
    """

    size: int

    def next(self) -> Ints:
        """Return the row numbers of the next batch, shape (size,)."""


@dataclass(frozen=True)
class LibraryTraining:
    """Everything the trainer needs besides the model and its trial.

    Attributes:
        n_rows: number of training rows; the trainer passes row numbers 0 to n_rows − 1 in the column `label`.
        collator: turns a list of such rows into the tensors of a batch.
        loss: computes the loss of a batch; holds the model.
        batches: picks the rows of each batch.
        batch_setting: name of the batch-size setting, quoted in error messages.
        optimizer: updates the trained parameters.
        schedule: learning-rate scheduler, stepped once per step.
        seed: seed of the trainer's own random numbers.
        report_to: experiment trackers, as in `transformers.TrainingArguments`; empty: none.
        model_class: class of the model, which decides the library's trainer.
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
    model_class: Literal["SentenceTransformer", "CrossEncoder"] = "SentenceTransformer"


def fit(model: Any, trial: Trial[Any], training: LibraryTraining) -> None:
    """Train a loaded sentence-transformers model in place.

    Does nothing if the checkpoint has already reached the last step. Under torchrun each process encodes its share of
    every batch, and each step equals the step that a single process would make.

    Args:
        model: the model; its gradient norm is clipped to `MAX_GRAD_NORM`.
        trial: evaluates between the steps and decides whether training continues.
        training: the batches, loss and optimizer.

    Raises:
        SettingsError: the batch size is not divisible by the number of processes.
    """
    steps = trial.steps - trial.first_step
    if not steps:
        return
    with tempfile.TemporaryDirectory(prefix="darklode-train-") as scratch:
        arguments = _arguments(scratch, steps, training, str(model.device))
        size = training.batches.size
        n_processes = arguments.world_size
        if size % n_processes:
            raise SettingsError(
                f"{training.batch_setting}: {size} rows per step cannot be split evenly over {n_processes} processes"
            )
        batch_sampler = _ProcessBatchSampler(training.batches, steps, n_processes)
        arguments.batch_sampler = lambda *_, **__: batch_sampler
        _trainer(model, trial, training, arguments).train()


def _arguments(scratch: str, steps: int, training: LibraryTraining, device: str) -> Any:
    arguments: Any = getattr(import_module("sentence_transformers"), f"{training.model_class}TrainingArguments")(
        scratch,
        max_steps=steps,
        per_device_train_batch_size=training.batches.size,
        max_grad_norm=MAX_GRAD_NORM,
        seed=training.seed,
        use_cpu=device == "cpu",
        dataloader_pin_memory=device != "cpu",
        save_strategy="no",
        logging_strategy="steps" if training.report_to else "no",
        logging_steps=LOGGING_STEPS,
        report_to=list(training.report_to) or "none",
        disable_tqdm=True,
    )
    # Several GPUs are used by several processes only. With n_gpu > 1 the trainer would wrap the model in DataParallel,
    # whose copies of the model would draw different random numbers.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _trainer(model: Any, trial: Trial[Any], training: LibraryTraining, arguments: Any) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback

    class StepCallback(TrainerCallback):
        """Runs the trial before the first step and after each."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            control.should_training_stop = not trial.after_step(trial.first_step + state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            control.should_training_stop = not trial.after_step(trial.first_step + state.global_step)

    library_class: Any = getattr(import_module("sentence_transformers"), f"{training.model_class}Trainer")

    class Trainer(library_class):  # type: ignore[misc]
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """Disabled, because Darklode writes its own card."""

    trainer = Trainer(
        model,
        arguments,
        Dataset.from_dict({"label": list(range(training.n_rows))}),
        loss=training.loss,
        data_collator=training.collator,
        callbacks=[StepCallback()],
        optimizers=(training.optimizer, training.schedule),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class _ProcessBatchSampler(BatchSampler):
    """Splits each batch into one consecutive share per process and yields the shares one after another.

    The data loader gives every n-th item to the same process, so the shares of one batch belong to the same step.
    """

    def __init__(self, batches: BatchPlan, steps: int, n_processes: int) -> None:
        super().__init__(range(0), batches.size // n_processes, drop_last=True)
        self._batches = batches
        self._steps = steps
        self._n_processes = n_processes

    def __len__(self) -> int:
        return self._steps * self._n_processes

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self._steps):
            for process_rows in np.split(self._batches.next(), self._n_processes):
                yield process_rows.tolist()


class QueryCollator:
    """Collates row numbers into tokenized queries (`query_…`) and the row numbers themselves (`label`).

    Args:
        features: tokenizes a list of texts.
        texts: returns the texts at a list of row numbers.
    """

    valid_label_columns = ("label",)

    def __init__(
        self, features: Callable[[list[str]], dict[str, Tensor]], texts: Callable[[list[int]], Iterable[str]]
    ) -> None:
        self._features, self._texts = features, texts

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Tensor]:
        row_numbers = [row["label"] for row in rows]
        tokens = self._features(list(self._texts(row_numbers)))
        query_tokens = {f"query_{name}": tensor for name, tensor in tokens.items()}
        return query_tokens | {"label": torch.tensor(row_numbers)}


def mixed_precision(device: torch.device) -> torch.autocast:
    """Autocast to bfloat16 where the GPU supports it; elsewhere a context that changes nothing.

    The trainer's own setting `bf16` would replace the model's `forward` for good, so that evaluations would use
    bfloat16, too, and differ from those of the released model.

    Args:
        device: the device of the model.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=_supports_bfloat16(device))


def _supports_bfloat16(device: torch.device) -> bool:
    """Whether a device computes in bfloat16 itself; older GPUs emulate it, which is slower than float32."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def mean_over_processes(loss: Tensor) -> Tensor:
    """Average a detached loss over all processes, in place."""
    if processes.is_initialized():
        processes.all_reduce(loss)
        loss /= processes.get_world_size()
    return loss
