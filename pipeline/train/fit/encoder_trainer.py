"""Train an encoder with the trainer of sentence-transformers: steps encode queries, documents are fixed vectors."""

from __future__ import annotations

import torch
import torch.distributed as processes
from torch import Tensor, nn

from darklode.pipeline.base.types import Ints
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit import library_trainer
from darklode.pipeline.train.fit.adaptation_trial import AdaptationTrial
from darklode.pipeline.train.fit.batches import PairSampler
from darklode.pipeline.train.fit.eval_point import EvalPoint
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.pipeline.train.types import OnStep
from darklode.schemas.adaptation import AdaptSettings


def train_encoder(
    task: Task, settings: AdaptSettings, rate: float, encoder: TrainableEncoder, seed: int, on_step: OnStep
) -> TrainingHistory[EvalPoint]:
    """Train an encoder with AdamW and a cosine schedule, sharing mining, evaluation and loss with heads.

    Under torchrun each process encodes its share of every batch; the steps equal those of a single process.

    Args:
        task: queries, positives and labels.
        settings: loss, negatives and steps.
        rate: peak learning rate; cosine decay to 0 without warm-up.
        encoder: the trainable encoder.
        seed: seed of all random draws.
        on_step: progress callback.
    """
    trial = AdaptationTrial(task, settings, seed, encoder, on_step)
    return fit_encoder(QueryLoss(encoder, trial), rate, seed)


class QueryLoss(nn.Module):
    """The loss of the trial, in float32; only the encoder runs in mixed precision.

    Args:
        encoder: the trainable encoder.
        trial: gives candidates and receives the losses.
    """

    def __init__(self, encoder: TrainableEncoder, trial: AdaptationTrial) -> None:
        super().__init__()
        self.model, self.encoder, self.trial = encoder.loaded, encoder, trial

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Loss of a batch; `labels` are the pairs of this process."""
        with library_trainer.mixed_precision(self.encoder.loaded.device):
            vectors = self.model(features[0])["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            pairs, first = _all_pairs(labels)
            loss = self.trial.loss(self.encoder.unit(vectors), pairs, first)
        self.trial.losses.append(library_trainer.mean_over_processes(loss.detach()))
        return loss


def fit_encoder(loss: QueryLoss, rate: float, seed: int) -> TrainingHistory[EvalPoint]:
    """Take the steps of the loss's trial."""
    encoder, trial = loss.encoder, loss.trial
    task, settings = trial.task, trial.settings
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=rate, weight_decay=0.0)
    training = library_trainer.LibraryTraining(
        n_rows=len(task.pair_query),
        collator=library_trainer.QueryCollator(
            encoder.features, lambda pairs: (task.train.texts[query] for query in task.pair_query[pairs])
        ),
        loss=loss,
        batches=PairSampler(task, settings, seed),
        batch_setting="adapt.batch_size",
        optimizer=optimizer,
        schedule=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.n_steps),
        seed=seed,
        report_to=settings.report_to,
    )
    library_trainer.fit(encoder.loaded, trial, training)
    return trial.history


def _all_pairs(labels: Tensor) -> tuple[Ints, int]:
    """The pairs of all processes, and the index of this process's first pair."""
    if not processes.is_initialized():
        return labels.cpu().numpy(), 0
    parts = [torch.empty_like(labels) for _ in range(processes.get_world_size())]
    processes.all_gather(parts, labels)
    return torch.cat(parts).cpu().numpy(), len(labels) * processes.get_rank()
