"""Queries and documents trained together (Table 1's QD): what adapting queries alone is held against.

Each look and each mining embeds all texts anew, and a step encodes the texts of its candidates: for small collections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from darklode.pipeline.train.encoder import Encoder
from darklode.pipeline.train.encoder_methods import TrainedEncoder
from darklode.pipeline.train.loop import LOOK, Course, Lesson, Tell, steady, weigh
from darklode.pipeline.train.task import Task
from darklode.pipeline.train.trainer import Loss, fitted
from darklode.pipeline.train.vectors import Base, Frozen
from darklode.pipeline.train.weights import Weights
from darklode.schemas.adaptation import AdaptSettings


class Joint(TrainedEncoder):
    """All of one encoder, for queries and documents alike; see `Method`.

    It begins with the base. There are no points on the way back: each would be an index of its own.

    Source: DevRev-Search, Table 1, QD.
    """

    shares: Sequence[float] = (1.0,)

    def trained(self, task: Task, setting: float, seed: int, tell: Tell) -> Course:
        """See `Method`."""
        with steady(seed):
            encoder = self._open()
            lesson = JointLesson(task, self._settings, seed, encoder, tell)
            lesson.texts = words(self._base, task.frozen)
            return fitted(JointLoss(encoder, lesson, self._settings), task, self._settings, setting, seed)

    def searched(self, frozen: Frozen, weights: Weights, share: float) -> Frozen:
        """See `Method`; all texts are encoded again."""
        with steady(0):
            encoder = self._opened or self._open()
            encoder.take(weights, share)
            return frozen.moved(encoder.document_vectors(words(self._base, frozen)))


class JointLesson(Lesson):
    """A lesson whose texts move: they are encoded again before each mining and look but the first.

    Attributes:
        texts: by position.
    """

    pupil: Encoder
    texts: list[str]

    def goes_on(self, step: int) -> bool:
        """See `Lesson`."""
        settings = self.settings
        if step and (step % LOOK == 0 or step % settings.refresh_steps == 0 or step == settings.steps):
            self.task = replace(self.task, frozen=self.task.frozen.moved(self.pupil.document_vectors(self.texts)))
        return super().goes_on(step)


class JointLoss(Loss):
    """The same loss, with gradients of the candidates' texts, too; of one process."""

    lesson: JointLesson

    def __init__(self, encoder: Encoder, lesson: JointLesson, settings: AdaptSettings) -> None:
        super().__init__(encoder, lesson)
        self._settings = settings

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch."""
        pairs = labels.cpu().numpy()
        candidates = self.lesson.candidates(pairs)
        positions, of = np.unique(np.maximum(candidates, 0), return_inverse=True)
        texts = self.encoder.documents([self.lesson.texts[position] for position in positions.tolist()])
        vectors = self.model(features[0])["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            turn = self.lesson.turn(pairs, candidates)
            found = weigh(self.encoder.unit(vectors), turn, self._settings, texts=texts[torch.from_numpy(of)])
        loss = found.mean()
        self.lesson.losses.append(loss.detach())
        return loss


def words(base: Base, frozen: Frozen) -> list[str]:
    """What the text at each position says, as encoders read it."""
    tenant = frozen.texts["tenant"][0].as_py()
    found = [
        pa.table([hashes, texts], ["hash", "text"]) for one in base.sources for hashes, texts in one.hashed(tenant)
    ]
    said = pa.concat_tables(found).combine_chunks()
    _, first = np.unique(frozen.position_of, return_index=True)
    hashes = frozen.texts["content_hash"].take(pa.array(first))
    return list(said["text"].take(pc.index_in(hashes, said["hash"].combine_chunks())).to_pylist())
