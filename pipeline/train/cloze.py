"""The inverse cloze task as a control: a sentence asks for the text that it stands in, and nobody labels anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.segmentation import longest_sentence
from darklode.pipeline.train.sources import texts_of
from darklode.pipeline.train.task import QuerySet, Task
from darklode.pipeline.train.vectors import BaseEncoder, FrozenIndex


def inverse_cloze(base: BaseEncoder, frozen: FrozenIndex) -> Callable[[Task, int], Task]:
    """Teaches as many sentences as there are train queries, each of another text, drawn by the seed.

    The sentence stays in its text: documents are frozen, so that the vector has it whatever is taken out.

    Source: Lee, Chang and Toutanova 2019 (ORQA), where nine of ten sentences are taken out.
    """

    def taught(task: Task, seed: int) -> Task:
        draws = np.random.default_rng([seed, 3])
        rows = np.sort(draws.permutation(frozen.texts.num_rows)[: len(task.train)])
        passages = texts_of(base.sources, frozen.texts.take(pa.array(rows)))["text"].to_pylist()
        sentences = [longest_sentence(text, draws.random()) for text in passages]
        has_sentence = np.array([bool(sentence) for sentence in sentences], bool)
        pseudo_queries = [sentence for sentence in sentences if sentence]
        ids = pa.array([f"sentence {number}" for number in range(len(pseudo_queries))], pa.string())
        index = frozen.texts["index"].to_numpy()[rows[has_sentence]]
        train = QuerySet(ids, frozen.encode(pseudo_queries), index, task.train.labels.slice(0, 0), pseudo_queries)
        return replace(task, train=train).from_training_pairs(
            np.arange(len(pseudo_queries)), frozen.position_of[rows[has_sentence]]
        )

    return taught
