"""Joint training of queries and documents (Table 1's QD), the reference for adapting queries alone.

Every evaluation and mining encodes all texts again, and each step encodes its candidates: for small collections only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.vectors import FrozenIndex
from darklode.pipeline.train.fit.adaptation_trial import AdaptationTrial
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.encoder_methods import EncoderMethod
from darklode.pipeline.train.fit.encoder_trainer import QueryLoss, fit_encoder
from darklode.pipeline.train.fit.eval_point import EvalPoint
from darklode.pipeline.train.fit.library_trainer import mixed_precision
from darklode.pipeline.train.fit.loss import batch_loss
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.pipeline.train.types import OnStep, Weights


class JointMethod(EncoderMethod):
    """Trains one encoder for queries and documents.

    It starts from the base. Smaller shares of the change are not evaluated, because each would need an index of its
    own.

    Source: DevRev-Search, Table 1, QD.
    """

    shares: Sequence[float] = (1.0,)

    def fit(self, task: Task, setting: float, seed: int, on_step: OnStep) -> TrainingHistory[EvalPoint]:
        with deterministic(seed):
            encoder = self._open()
            trial = JointTrial(task, self._settings, seed, encoder, on_step)
            trial.texts = passage_texts(self._base, task.frozen)
            return fit_encoder(JointLoss(encoder, trial), setting, seed)

    def transform_index(self, frozen: FrozenIndex, weights: Weights, share: float) -> FrozenIndex:
        """Encodes all texts again."""
        with deterministic(0):
            encoder = self._opened or self._open()
            encoder.restore(weights, share)
            return frozen.with_vectors(encoder.document_vectors(passage_texts(self._base, frozen)))


class JointTrial(AdaptationTrial):
    """A trial whose texts are encoded again before each mining and evaluation except the first.

    Attributes:
        texts: the text at each position.
    """

    model: TrainableEncoder
    texts: list[str]

    def prepare_step(self, step: int) -> None:
        if step and (step % self.settings.refresh_steps == 0 or self.is_evaluation_due(step)):
            frozen = self.task.frozen.with_vectors(self.model.document_vectors(self.texts))
            self.task = replace(self.task, frozen=frozen)
        super().prepare_step(step)


class JointLoss(QueryLoss):
    """The same loss with gradients of the candidate texts; single process only."""

    trial: JointTrial

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        pairs = labels.cpu().numpy()
        candidates = self.trial.candidates(pairs)
        positions, candidate_index = np.unique(np.maximum(candidates, 0), return_inverse=True)
        with mixed_precision(self.encoder.loaded.device):
            texts = self.encoder.documents([self.trial.texts[position] for position in positions.tolist()])
            vectors = self.model(features[0])["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            losses = batch_loss(
                self.encoder.unit(vectors),
                self.trial.batch(pairs, candidates),
                self.trial.settings,
                texts=texts[torch.from_numpy(candidate_index)],
            )
        loss = losses.mean()
        self.trial.losses.append(loss.detach())
        return loss


def passage_texts(base: BaseEncoder, frozen: FrozenIndex) -> list[str]:
    """The text at each position, as encoders read it."""
    tenant = frozen.texts["tenant"][0].as_py()
    tables_of_texts = [
        pa.table([hashes, texts], ["hash", "text"])
        for source in base.sources
        for hashes, texts in source.iterate_hashes(tenant)
    ]
    all_texts = pa.concat_tables(tables_of_texts).combine_chunks()
    _, first = np.unique(frozen.position_of, return_index=True)
    hashes = frozen.texts["content_hash"].take(pa.array(first))
    return list(all_texts["text"].take(pc.index_in(hashes, all_texts["hash"].combine_chunks())).to_pylist())
