"""Trials of encoders in sentence-transformers' trainer: a step encodes queries, documents are vectors."""

from __future__ import annotations

import torch
import torch.distributed as processes
from torch import Tensor, nn

from darklode.pipeline.train import fitting
from darklode.pipeline.train.encoder import TrainableEncoder
from darklode.pipeline.train.loop import BatchSampler, Tell, TrainingHistory, TrainingLoop
from darklode.pipeline.train.task import Task
from darklode.pipeline.train.vectors import Ints
from darklode.schemas.adaptation import AdaptSettings


def train_encoder(
    task: Task, settings: AdaptSettings, rate: float, encoder: TrainableEncoder, seed: int, tell: Tell
) -> TrainingHistory:
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
    return fit_encoder(
        QueryLoss(encoder, TrainingLoop(task, settings, seed, encoder, tell)), task, settings, rate, seed
    )


class QueryLoss(nn.Module):
    """The lesson's loss, outside of mixed precision.

    Args:
        encoder: what learns.
        lesson: what happens around its steps.
    """

    def __init__(self, encoder: TrainableEncoder, lesson: TrainingLoop) -> None:
        super().__init__()
        self.model, self.encoder, self.lesson = encoder.loaded, encoder, lesson

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch."""
        vectors = self.model(features[0])["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            pairs, first = _all_pairs(labels)
            loss = self.lesson.loss(self.encoder.unit(vectors), pairs, first)
        self.lesson.losses.append(fitting.of_all(loss.detach()))
        return loss


def fit_encoder(loss: QueryLoss, task: Task, settings: AdaptSettings, rate: float, seed: int) -> TrainingHistory:
    """Take the steps of a lesson; see `train_encoder`."""
    encoder, batches = loss.encoder, BatchSampler(task, settings, seed)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=rate, weight_decay=0.0)
    training = fitting.Training(
        len(task.pair_query),
        fitting.QueryCollator(
            encoder.features, lambda pairs: (task.train.texts[query] for query in task.pair_query[pairs])
        ),
        loss,
        loss.lesson.evaluate_step,
        optimiser,
        torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps),
    )
    fitting.fit(
        encoder.loaded, fitting.BatchSteps(settings.steps, batches, "adapt.batch", seed, settings.report_to), training
    )
    return loss.lesson.course


def _all_pairs(labels: Tensor) -> tuple[Ints, int]:
    """The pairs of all processes, and the place of this one's first."""
    if not processes.is_initialized():
        return labels.cpu().numpy(), 0
    parts = [torch.empty_like(labels) for _ in range(processes.get_world_size())]
    processes.all_gather(parts, labels)
    return torch.cat(parts).cpu().numpy(), len(labels) * processes.get_rank()
