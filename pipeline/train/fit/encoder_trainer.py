"""Train an encoder with the trainer of sentence-transformers: steps encode queries, documents are fixed vectors."""

from __future__ import annotations

import torch
import torch.distributed as processes
from torch import Tensor, nn

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.vectors import Ints
from darklode.pipeline.train.fit import library_trainer
from darklode.pipeline.train.fit.loop import BatchSampler, Tell, TrainingHistory, TrainingLoop
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder
from darklode.schemas.adaptation import AdaptSettings


def train_encoder(
    task: Task, settings: AdaptSettings, rate: float, encoder: TrainableEncoder, seed: int, tell: Tell
) -> TrainingHistory:
    """Train an encoder with AdamW and a cosine schedule, sharing mining, evaluation and loss with heads.

    Under torchrun each process encodes its share of every batch; the steps equal those of a single process.

    Args:
        task: queries, positives and labels.
        settings: loss, negatives and steps.
        rate: peak learning rate; cosine decay to 0 without warm-up.
        encoder: the trainable encoder.
        seed: of all random draws.
        tell: progress callback, receives steps done and a message.
    """
    return fit_encoder(
        QueryLoss(encoder, TrainingLoop(task, settings, seed, encoder, tell)), task, settings, rate, seed
    )


class QueryLoss(nn.Module):
    """The loss of the training loop, outside of mixed precision.

    Args:
        encoder: the trainable encoder.
        lesson: the training loop.
    """

    def __init__(self, encoder: TrainableEncoder, lesson: TrainingLoop) -> None:
        super().__init__()
        self.model, self.encoder, self.lesson = encoder.loaded, encoder, lesson

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        vectors = self.model(features[0])["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            pairs, first = _all_pairs(labels)
            loss = self.lesson.loss(self.encoder.unit(vectors), pairs, first)
        self.lesson.losses.append(library_trainer.of_all(loss.detach()))
        return loss


def fit_encoder(loss: QueryLoss, task: Task, settings: AdaptSettings, rate: float, seed: int) -> TrainingHistory:
    """Run the steps of a training loop."""
    encoder, batches = loss.encoder, BatchSampler(task, settings, seed)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=rate, weight_decay=0.0)
    training = library_trainer.Training(
        len(task.pair_query),
        library_trainer.QueryCollator(
            encoder.features, lambda pairs: (task.train.texts[query] for query in task.pair_query[pairs])
        ),
        loss,
        loss.lesson.evaluate_step,
        optimiser,
        torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.max_steps),
    )
    library_trainer.fit(
        encoder.loaded,
        library_trainer.BatchSteps(settings.max_steps, batches, "adapt.batch_size", seed, settings.report_to),
        training,
    )
    return loss.lesson.course


def _all_pairs(labels: Tensor) -> tuple[Ints, int]:
    """The pairs of all processes, and the index of this process's first pair."""
    if not processes.is_initialized():
        return labels.cpu().numpy(), 0
    parts = [torch.empty_like(labels) for _ in range(processes.get_world_size())]
    processes.all_gather(parts, labels)
    return torch.cat(parts).cpu().numpy(), len(labels) * processes.get_rank()
