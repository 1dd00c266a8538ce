"""Inverse cloze task as an unsupervised control: a sentence is the query, the text it comes from is the positive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.segmentation import draw_long_sentence
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.sources import texts_of
from darklode.pipeline.train.data.vectors import FrozenIndex


def inverse_cloze(base: BaseEncoder, frozen: FrozenIndex) -> Callable[[Task, int], Task]:
    """Creates as many (sentence, text) pairs as there are train queries, from different texts drawn by the seed.

    The sentence is not removed from its text, because document vectors are frozen and contain it anyway.

    Source: Lee, Chang and Toutanova 2019 (ORQA), which removes nine of ten sentences.
    """

    def build_task(task: Task, seed: int) -> Task:
        draws = np.random.default_rng([seed, 3])  # 3 tells this random stream apart from others of the same seed
        rows = np.sort(draws.permutation(frozen.texts.num_rows)[: len(task.train)])
        passages = texts_of(base.sources, frozen.texts.take(pa.array(rows)))["text"].to_pylist()
        sentences = [draw_long_sentence(text, draws.random()) for text in passages]
        has_sentence = np.array([bool(sentence) for sentence in sentences], bool)
        pseudo_queries = [sentence for sentence in sentences if sentence]
        ids = pa.array([f"sentence {number}" for number in range(len(pseudo_queries))], pa.string())
        index = frozen.texts["index"].to_numpy()[rows[has_sentence]]
        train = QuerySet(ids, frozen.encode(pseudo_queries), index, task.train.labels.slice(0, 0), pseudo_queries)
        return replace(task, train=train).from_training_pairs(
            np.arange(len(pseudo_queries)), frozen.position_of[rows[has_sentence]]
        )

    return build_task
