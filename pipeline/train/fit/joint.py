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

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.vectors import BaseEncoder, FrozenIndex
from darklode.pipeline.train.fit.encoder_methods import EncoderMethod
from darklode.pipeline.train.fit.encoder_trainer import QueryLoss, fit_encoder
from darklode.pipeline.train.fit.loop import LOOK, Tell, TrainingHistory, TrainingLoop, batch_loss, deterministic
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder
from darklode.pipeline.train.fit.weights import Weights
from darklode.schemas.adaptation import AdaptSettings


class JointMethod(EncoderMethod):
    """Trains one encoder for queries and documents.

    It starts from the base. Shares of the way back are not evaluated, because each would need an index of its own.

    Source: DevRev-Search, Table 1, QD.
    """

    shares: Sequence[float] = (1.0,)

    def fit(self, task: Task, setting: float, seed: int, tell: Tell) -> TrainingHistory:
        with deterministic(seed):
            encoder = self._open()
            lesson = JointTraining(task, self._settings, seed, encoder, tell)
            lesson.texts = passage_texts(self._base, task.frozen)
            return fit_encoder(JointLoss(encoder, lesson, self._settings), task, self._settings, setting, seed)

    def transform_index(self, frozen: FrozenIndex, weights: Weights, share: float) -> FrozenIndex:
        """Encodes all texts again."""
        with deterministic(0):
            encoder = self._opened or self._open()
            encoder.restore(weights, share)
            return frozen.with_vectors(encoder.document_vectors(passage_texts(self._base, frozen)))


class JointTraining(TrainingLoop):
    """A training loop whose texts are encoded again before each mining and evaluation except the first.

    Attributes:
        texts: by position.
    """

    pupil: TrainableEncoder
    texts: list[str]

    def evaluate_step(self, step: int) -> bool:
        settings = self.settings
        if step and (step % LOOK == 0 or step % settings.refresh_steps == 0 or step == settings.max_steps):
            self.task = replace(
                self.task, frozen=self.task.frozen.with_vectors(self.pupil.document_vectors(self.texts))
            )
        return super().evaluate_step(step)


class JointLoss(QueryLoss):
    """The same loss with gradients of the candidate texts; single process only."""

    lesson: JointTraining

    def __init__(self, encoder: TrainableEncoder, lesson: JointTraining, settings: AdaptSettings) -> None:
        super().__init__(encoder, lesson)
        self._settings = settings

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        pairs = labels.cpu().numpy()
        candidates = self.lesson.candidates(pairs)
        positions, candidate_index = np.unique(np.maximum(candidates, 0), return_inverse=True)
        texts = self.encoder.documents([self.lesson.texts[position] for position in positions.tolist()])
        vectors = self.model(features[0])["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            turn = self.lesson.turn(pairs, candidates)
            loss_parts = batch_loss(
                self.encoder.unit(vectors), turn, self._settings, texts=texts[torch.from_numpy(candidate_index)]
            )
        loss = loss_parts.mean()
        self.lesson.losses.append(loss.detach())
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
