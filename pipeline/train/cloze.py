"""The inverse cloze task as a control: a sentence asks for the text that it stands in, and nobody labels anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.segmentation import count_words, sentences
from darklode.pipeline.train.sources import words_of
from darklode.pipeline.train.task import Questions, Task
from darklode.pipeline.train.vectors import Base, Frozen

WORDS = 4
"""A sentence of fewer words asks for too little."""


def inverse_cloze(base: Base, frozen: Frozen) -> Callable[[Task, int], Task]:
    """Teaches as many sentences as there are train queries, each of another text, drawn by the seed.

    The sentence stays in its text: documents are frozen, so that the vector has it whatever is taken out.

    Source: Lee, Chang and Toutanova 2019 (ORQA), where nine of ten sentences are taken out.
    """

    def taught(task: Task, seed: int) -> Task:
        draws = np.random.default_rng([seed, 3])
        rows = np.sort(draws.permutation(frozen.texts.num_rows)[: len(task.train)])
        said = words_of(base.sources, frozen.texts.take(pa.array(rows)))["text"].to_pylist()
        found = [_one(text, draws) for text in said]
        there = np.array([bool(sentence) for sentence in found], bool)
        asked = [sentence for sentence in found if sentence]
        ids = pa.array([f"sentence {number}" for number in range(len(asked))], pa.string())
        index = frozen.texts["index"].to_numpy()[rows[there]]
        train = Questions(ids, frozen.encode(asked), index, task.train.labels.slice(0, 0), asked)
        return replace(task, train=train).taught(np.arange(len(asked)), frozen.position_of[rows[there]])

    return taught


def _one(text: str, draws: np.random.Generator) -> str:
    """A sentence of a text; all of it where none is long enough."""
    found = sentences(text)
    long = np.flatnonzero(count_words(pa.chunked_array([pa.array(found, pa.string())])).to_numpy() >= WORDS)
    return found[int(draws.choice(long))] if len(long) else text.strip()
