"""A build whose relevant texts have a word of their own, and tiny models for which that word is one token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from darklode.flows.jobs.train_reranker import train_reranker
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.reranker.model import InitialReranker
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import Settings
from helpers.adapted import build_to_adapt, word
from helpers.runs import put
from helpers.tiny_bert import tiny_bert

RERANKER_SIDES = {"train": 80, "validation": 12, "test": 40}
MARKERS = [word(40 + part) for part in range(3)]
"""The last word of a topic's three texts; the first one's text is relevant."""

SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "initializer_range": 0.2}


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


CANDIDATES = 10


@dataclass(frozen=True)
class RerankedRun:
    """A build, and the output folder of a complete training on it.

    Attributes:
        root: folder of the run, the models and the cache.
        out: the output folder.
        verdict: what the job returned.
    """

    root: Path
    out: Run
    verdict: str

    @property
    def settings(self) -> Settings:
        return Settings.model_validate(quick_settings(self.root))

    @property
    def model(self) -> SentenceTransformersSettings:
        return SentenceTransformersSettings(model=str(self.root / "bi"))

    @property
    def finder(self) -> BaseEncoder:
        source = TrainingSource(Run(str(self.root / "run")), 0, mined=False, text_characters=100)
        return BaseEncoder(self.model, self.settings.cache, VectorSearchSettings(device="cpu"), (source,))

    @property
    def initial(self) -> InitialReranker:
        return InitialReranker(self.model, self.settings.seed)


def reranked_run(root: Path) -> RerankedRun:
    """Build, and train a reranker from a bi-encoder."""
    build_to_rerank(root / "run")
    bi_encoder(root / "bi")
    paths = [str(root / "run")], str(root / "bi"), str(root / "out")
    verdict = train_reranker(*paths, quick_settings(root), None, CANDIDATES)
    return RerankedRun(root, Run(str(root / "out")), verdict)
