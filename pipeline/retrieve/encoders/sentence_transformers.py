"""Encoders of sentence-transformers on local GPUs or the CPU."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.retrieve.encoders.local_encoder import LocalEncoder, unit_vectors
from darklode.pipeline.retrieve.encoders.prompted_model import PromptedModel


def with_prompt(settings: PromptedModel, texts: Sequence[str], *, queries: bool) -> list[str]:
    """Texts with the query or document prompt of the settings."""
    prompt = settings.query_prompt if queries else settings.document_prompt
    return [prompt + text for text in texts]


def encode_texts(
    model: Any, settings: PromptedModel, texts: Sequence[str], *, queries: bool, **options: Any
) -> NDArray[np.float32]:
    """Vectors of texts with their prompt as the model gives them, neither truncated nor normalized.

    All vectors of a configured encoder, of its layers and of models trained from it are computed here, so that none
    misses
    its prompt. A Router model is told which route to use.

    Args:
        model: a sentence-transformers model without a default prompt.
        settings: prompts and batch size.
        texts: without prompt.
        queries: whether they are queries.
        options: options of sentence-transformers' `encode`.
    """
    prompted, task = with_prompt(settings, texts, queries=queries), "query" if queries else "document"
    size = settings.batch_size
    vectors = model.encode(prompted, batch_size=size, show_progress_bar=False, task=task, **options)
    return np.asarray(vectors, np.float32)


class SentenceTransformersEncoder(LocalEncoder):
    """A sentence-transformers model.

    Prompts are prepended here and the model's default prompt is disabled, so that only the settings count. Code shipped
    with a
    model is never executed. Vectors are float32 and normalized, whatever the model's precision; with `dimensions` they
    are
    truncated first (Kusupati et al. 2022, Matryoshka Representation Learning). With several GPUs each has a copy of the
    model
    in its own process.

    Raises:
        MissingPart: a package, the model or the GPU is missing, or the model needs its own code.
        SettingsError: more tokens or dimensions than the model has.
    """

    def __init__(self, settings: PromptedModel) -> None:
        self._settings = settings
        self._devices = devices(settings.device)
        self._model = load_model(settings, self._devices[0])
        self._pool: Any = None
        self.encoder_id = settings.encoder_id()
        has = encode_texts(self._model, settings, ["dimensions"], queries=False).shape[1]
        if settings.truncate_dim and settings.truncate_dim > has:
            raise SettingsError(f"dimensions {settings.truncate_dim}: {settings.model} has only {has}")
        self.dimensions = settings.truncate_dim or has

    @property
    def _texts_per_pass(self) -> int:
        return self._settings.batch_size * len(self._devices)

    def _encode(self, texts: Sequence[str], *, queries: bool, ids: Sequence[str] | None = None) -> NDArray[np.float32]:
        if not len(texts):
            return np.zeros((0, self.dimensions), np.float32)
        if len(self._devices) > 1 and self._pool is None:
            self._pool = self._model.start_multi_process_pool(self._devices)
            weakref.finalize(self, type(self._model).stop_multi_process_pool, self._pool)
        vectors = encode_texts(self._model, self._settings, texts, queries=queries, pool=self._pool)
        advice = f"the model overflows with dtype {self._settings.dtype}; set dtype: bfloat16 or float32"
        return unit_vectors(vectors[:, : self.dimensions], texts, ids, model=self._settings.model, advice=advice)
