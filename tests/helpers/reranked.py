"""A build whose relevant texts have a word of their own, and tiny models for which that word is one token."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Run
from helpers.adapted import build_to_adapt, word
from helpers.runs import put
from helpers.tiny_bert import tiny_bert

RERANKER_SIDES = {"train": 80, "validation": 12, "test": 40}
MARKERS = [word(40 + part) for part in range(3)]
"""The last word of a topic's three texts; the first one's text is relevant."""

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "initializer_range": 0.2}


def build_to_rerank(folder: Path) -> Run:
    """All three texts of a topic are candidates for its query; which one is relevant, only a reranker can learn.

    The relevant one is longer, so that BM25 ranks it last.
    """
    run = build_to_adapt(folder, RERANKER_SIDES)
    chunks = run.tables("chunks").read("chunks")
    is_relevant = pc.ends_with(chunks["chunk_id"], "#0")
    longer = pc.binary_join_element_wise(chunks["text"], "in many more words", " ")
    column = chunks.schema.get_field_index("text")
    texts = pc.if_else(is_relevant, longer, chunks["text"])
    put(run, "chunks", chunks.set_column(column, chunks.schema.field(column), texts))
    return run


def bi_encoder(folder: Path) -> Path:
    """An encoder at random weights."""
    return tiny_bert(folder, whole=MARKERS, **SIZES)


def cross_encoder(folder: Path) -> Path:
    """A cross-encoder at random weights."""
    return tiny_bert(folder, "BertForSequenceClassification", whole=MARKERS, num_labels=1, **SIZES)


def quick_settings(root: Path, max_steps: int = 120) -> dict[str, object]:
    """Settings for a training of seconds, with the cache below a folder."""
    reranker = {"max_steps": max_steps, "batch_size": 16, "learning_rates": [5e-3], "num_negatives": 4}
    return {"cache": {"root": str(root / "cache")}, "reranker": reranker}
