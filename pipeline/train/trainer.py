"""Trials of encoders in sentence-transformers' trainer: a step encodes queries, documents are vectors."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as processes
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.train.encoder import Encoder
from darklode.pipeline.train.loop import LONGEST, LOOK, Batches, Course, Lesson, Tell
from darklode.pipeline.train.task import Task
from darklode.pipeline.train.vectors import Ints
from darklode.schemas.adaptation import AdaptSettings


def trained(task: Task, settings: AdaptSettings, rate: float, encoder: Encoder, seed: int, tell: Tell) -> Course:
    """Train an encoder; AdamW and the cosine are those of heads, and so are mining, looks and loss.

    Started by torchrun, each process encodes its share of every batch; the steps are those of one process.

    Args:
        task: queries, positives and labels.
        settings: the loss, negatives and steps.
        rate: the highest learning rate; it falls to 0 along a cosine, without warm-up.
        encoder: what learns.
        seed: of all draws.
        tell: hears of each look: steps done, and what was seen.
    """
    lesson, batches = Lesson(task, settings, seed, encoder, tell), Batches(task, settings, seed)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)
    with tempfile.TemporaryDirectory(prefix="darklode-train-") as scratch:
        given = _arguments(scratch, settings, seed, str(encoder.loaded.device))
        turns = _Turns(_even(batches, given.world_size), settings.steps, given.world_size)
        given.batch_sampler = lambda *_, **__: turns
        _trainer(task, encoder, lesson, given, (optimiser, schedule)).train()
    return lesson.course


def _arguments(scratch: str, settings: AdaptSettings, seed: int, device: str) -> Any:
    from sentence_transformers import SentenceTransformerTrainingArguments

    given = SentenceTransformerTrainingArguments(
        scratch,
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch,
        max_grad_norm=LONGEST,
        seed=seed,
        use_cpu=device == "cpu",
        bf16=device != "cpu",
        dataloader_pin_memory=device != "cpu",
        save_strategy="no",
        logging_strategy="steps" if settings.report_to else "no",
        logging_steps=LOOK,
        report_to=list(settings.report_to) or "none",
        disable_tqdm=True,
    )
    given._n_gpu = min(given.n_gpu, 1)  # several GPUs are several processes: copies in threads would draw apart
    return given


def _trainer(task: Task, encoder: Encoder, lesson: Lesson, given: Any, optimisers: tuple[Any, Any]) -> Any:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer
    from transformers import PrinterCallback, TrainerCallback

    class Rhythm(TrainerCallback):
        """Mines and looks before the first step and after each."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            control.should_training_stop = not lesson.goes_on(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            control.should_training_stop = not lesson.goes_on(state.global_step)

    class Trainer(SentenceTransformerTrainer):
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """Darklode writes the card."""

    trainer = Trainer(
        encoder.loaded,
        given,
        Dataset.from_dict({"label": list(range(len(task.pair_query)))}),
        loss=_Loss(encoder, lesson),
        data_collator=_Tokens(task, encoder),
        callbacks=[Rhythm()],
        optimizers=optimisers,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _even(batches: Batches, parts: int) -> Batches:
    if batches.size % parts:
        raise SettingsError(f"adapt.batch: {batches.size} queries a step cannot be shared evenly by {parts} processes")
    return batches


class _Turns(BatchSampler):
    """Places of pairs, batch by batch; of several processes each takes every n-th part."""

    def __init__(self, batches: Batches, steps: int, parts: int) -> None:
        super().__init__(range(0), batches.size // parts, drop_last=True)
        self._batches, self._steps, self._parts = batches, steps, parts

    def __len__(self) -> int:
        return self._steps * self._parts

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self._steps):
            for part in np.split(self._batches.next(), self._parts):
                yield part.tolist()


class _Tokens:
    """Tokens of the queries of a batch's pairs, and the pairs."""

    valid_label_columns = ("label",)

    def __init__(self, task: Task, encoder: Encoder) -> None:
        self._task, self._encoder = task, encoder

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Tensor]:
        pairs = [row["label"] for row in rows]
        texts = [self._task.train.texts[query] for query in self._task.pair_query[pairs]]
        found = {f"query_{name}": value for name, value in self._encoder.features(texts).items()}
        return found | {"label": torch.tensor(pairs)}


class _Loss(nn.Module):
    """The lesson's loss, outside of mixed precision."""

    def __init__(self, encoder: Encoder, lesson: Lesson) -> None:
        super().__init__()
        self.model, self._encoder, self._lesson = encoder.loaded, encoder, lesson

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        vectors = self.model(features[0])["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            pairs, first = _all_pairs(labels)
            loss = self._lesson.loss(self._encoder.unit(vectors), pairs, first)
        self._lesson.losses.append(_mean(loss.detach()))
        return loss


def _all_pairs(labels: Tensor) -> tuple[Ints, int]:
    """The pairs of all processes, and the place of this one's first."""
    if not processes.is_initialized():
        return labels.cpu().numpy(), 0
    parts = [torch.empty_like(labels) for _ in range(processes.get_world_size())]
    processes.all_gather(parts, labels)
    return torch.cat(parts).cpu().numpy(), len(labels) * processes.get_rank()


def _mean(loss: Tensor) -> Tensor:
    """Over all processes."""
    if processes.is_initialized():
        processes.all_reduce(loss)
        loss /= processes.get_world_size()
    return loss
