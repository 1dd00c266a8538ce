"""Static students: a table of token vectors, so that a query is encoded by lookups and a mean.

Initialized as model2vec (Tulkens and van Dongen 2024) does, from what the teacher makes of each token alone, with
frequency weights; but the map to the teacher's dimensions is fitted to query vectors instead of being the principal
components, because documents keep the teacher's vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.initialization import fit_linear_map
from darklode.pipeline.towers.lookup import hidden_states
from darklode.pipeline.towers.student import Student
from darklode.pipeline.train.release.modules import modules

SIF_WEIGHT = 1e-3
"""a in the token weight a / (a + p) (Arora et al. 2017, A simple but tough-to-beat baseline for sentence vectors)."""

ROW_NORM = 0.3
"""Mean norm of the initial token vectors.

The direction of their mean does not depend on it, but Adam's steps are of the size of the learning rate: at this norm
the default rate, which is that of transformers, suits both.
"""


class StaticStudent(Student):
    """A trainable table of token vectors.

    Args:
        loaded: a sentence-transformers model with one `StaticEmbedding`.
        settings: prompt and batch size.
        teacher: the teacher's sentence-transformers model, with the same tokenizer.
    """

    n_initialization_texts = 1 << 15

    def __init__(self, loaded: Any, settings: SentenceTransformersSettings, teacher: Any) -> None:
        self.loaded, self._settings, self._teacher = loaded, settings, teacher
        self._lora, self.start = None, None
        loaded.requires_grad_(True)
        self.trained = dict(loaded.named_parameters())
        self._base = self._copies()

    def initialize(self, texts: list[str], targets: Floats) -> None:
        """Weight the token vectors by frequency and map them to the teacher's dimensions by ridge regression.

        Args:
            texts: training texts.
            targets: the teacher's unit vectors.
        """
        table = self.loaded[0].embedding
        features = self.features(texts)
        counts = torch.bincount(features["input_ids"], minlength=table.num_embeddings).numpy()
        frequencies = (counts + 0.5) / (counts.sum() + 0.5)
        weighted = hidden_states(self._teacher[0].auto_model, self._teacher.tokenizer, layer=-1) * (
            SIF_WEIGHT / (SIF_WEIGHT + frequencies)
        )[:, None].astype(np.float32)
        offsets = features["offsets"]
        is_filled = torch.diff(offsets, append=torch.tensor([len(features["input_ids"])])).numpy() > 0
        means = torch.nn.functional.embedding_bag(features["input_ids"], torch.from_numpy(weighted), offsets).numpy()
        mapped = weighted @ fit_linear_map(means[is_filled], targets[is_filled]).T
        scale = ROW_NORM / max(float(np.linalg.norm(mapped, axis=1).mean()), 1e-9)
        with torch.no_grad():
            table.weight.copy_(torch.from_numpy(mapped * scale))


def open_static(teacher: Any, settings: SentenceTransformersSettings, dimensions: int) -> StaticStudent:
    """A static student of a loaded teacher, to be initialized.

    Args:
        teacher: the teacher's sentence-transformers model.
        settings: how the student reads queries.
        dimensions: length of the teacher's vectors.

    Raises:
        SettingsError: the teacher has no fast tokenizer.
    """
    from sentence_transformers import SentenceTransformer

    backend = getattr(teacher.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise SettingsError(f"{settings.model} has no fast tokenizer, which a static student needs")
    tokenizer = type(backend).from_str(backend.to_str())  # a copy: the student's settings must not reach the teacher's
    tokenizer.no_padding()
    tokenizer.no_truncation()
    table = modules().StaticEmbedding(tokenizer, embedding_dim=dimensions)
    return StaticStudent(SentenceTransformer(modules=[table], device="cpu"), settings, teacher)
