"""The inverse cloze task as a control: a sentence asks for the text that it stands in, and nobody labels anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.segmentation import a_sentence
from darklode.pipeline.train.sources import words_of
from darklode.pipeline.train.task import Questions, Task
from darklode.pipeline.train.vectors import Base, Frozen


def inverse_cloze(base: Base, frozen: Frozen) -> Callable[[Task, int], Task]:
    """Teaches as many sentences as there are train queries, each of another text, drawn by the seed.

    The sentence stays in its text: documents are frozen, so that the vector has it whatever is taken out.

    Source: Lee, Chang and Toutanova 2019 (ORQA), where nine of ten sentences are taken out.
    """

    def taught(task: Task, seed: int) -> Task:
        draws = np.random.default_rng([seed, 3])
        rows = np.sort(draws.permutation(frozen.texts.num_rows)[: len(task.train)])
        said = words_of(base.sources, frozen.texts.take(pa.array(rows)))["text"].to_pylist()
        found = [a_sentence(text, draws.random()) for text in said]
        there = np.array([bool(sentence) for sentence in found], bool)
        asked = [sentence for sentence in found if sentence]
        ids = pa.array([f"sentence {number}" for number in range(len(asked))], pa.string())
        index = frozen.texts["index"].to_numpy()[rows[there]]
        train = Questions(ids, frozen.encode(asked), index, task.train.labels.slice(0, 0), asked)
        return replace(task, train=train).taught(np.arange(len(asked)), frozen.position_of[rows[there]])

    return taught
