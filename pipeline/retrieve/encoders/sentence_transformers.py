"""Encoders from sentence-transformers, on this machine's GPUs or CPU."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import DarklodeError, SettingsError
from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.encoders.port import Vectors

_FORWARD_PASSES = 32
"""Vectors are handed on after so many on each device."""


def with_prompt(settings: SentenceTransformersSettings, texts: Sequence[str], *, queries: bool) -> list[str]:
    """Texts as the model reads them: after the query or document prompt of the settings."""
    prompt = settings.query_prompt if queries else settings.document_prompt
    return [prompt + text for text in texts]


def encode_texts(
    model: Any, settings: SentenceTransformersSettings, texts: Sequence[str], *, queries: bool, **options: Any
) -> NDArray[np.float32]:
    """Vectors of texts with their prompt, as a model gives them; neither truncated nor normalized.

    Every vector of a configured encoder, of its layers and of what is trained from it is computed here, so that none is
    without its prompt. A model with a Router is told which route to take.

    Args:
        model: of sentence-transformers, without a default prompt.
        settings: prompts and batch size.
        texts: without prompt.
        queries: whether they are queries.
        options: of sentence-transformers' `encode`.
    """
    prompted, task = with_prompt(settings, texts, queries=queries), "query" if queries else "document"
    size = settings.batch_size
    vectors = model.encode(prompted, batch_size=size, show_progress_bar=False, task=task, **options)
    return np.asarray(vectors, np.float32)


class SentenceTransformersEncoder:
    """A sentence-transformers model behind the port.

    Prompts are put before the texts here and the model's own default prompt is switched off, so that the settings
    alone decide. Code that a model brings along is never run. Each text is one row of length 1, float32, whatever
    the model's precision; with `dimensions` a row is cut first and scaled after (Kusupati et al. 2022, Matryoshka
    Representation Learning). On several GPUs each has a copy of the model in a process of its own.

    Raises:
        MissingPart: a package, the model or the GPU is missing, or the model relies on code of its own.
        SettingsError: more tokens or dimensions than the model has.
    """

    encoder_id: str
    dimensions: int
    cost = 0.0

    def __init__(self, settings: SentenceTransformersSettings) -> None:
        self._settings = settings
        self._devices = devices(settings.device)
        self._model = load_model(settings, self._devices[0])
        self._pool: Any = None
        self.encoder_id = settings.encoder_id()
        has = encode_texts(self._model, settings, ["dimensions"], queries=False).shape[1]
        if settings.dimensions and settings.dimensions > has:
            raise SettingsError(f"dimensions {settings.dimensions}: {settings.model} has only {has}")
        self.dimensions = settings.dimensions or has

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, shape (len(texts), dimensions), in the order of the texts."""
        return self._encode(texts, queries=True)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, shape (len(texts), dimensions), in the order of the texts."""
        return self._encode(texts, queries=False)

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        """Vectors as they are made, shortest texts first; see `ModelEncoder`."""
        order = np.argsort([len(text) for text in texts], kind="stable")
        step = _FORWARD_PASSES * self._settings.batch_size * len(self._devices)
        for start in range(0, len(order), step):
            places = order[start : start + step]
            names = [ids[position] for position in places] if ids else None
            yield places, self._encode([texts[position] for position in places], queries=queries, ids=names)

    def _encode(self, texts: Sequence[str], *, queries: bool, ids: Sequence[str] | None = None) -> NDArray[np.float32]:
        if not len(texts):
            return np.zeros((0, self.dimensions), np.float32)
        if len(self._devices) > 1 and self._pool is None:
            self._pool = self._model.start_multi_process_pool(self._devices)
            weakref.finalize(self, type(self._model).stop_multi_process_pool, self._pool)
        vectors = encode_texts(self._model, self._settings, texts, queries=queries, pool=self._pool)
        vectors = vectors[:, : self.dimensions]
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        broken = ~np.isfinite(lengths[:, 0])
        if broken.any():
            row = int(broken.argmax())
            text_name = f"{texts[row][:60]!r}" + (f" (content hash {ids[row]})" if ids else "")
            raise DarklodeError(
                f"{self._settings.model} gave a vector with NaN or infinity for {text_name}: "
                f"the model overflows with dtype {self._settings.dtype}; set dtype: bfloat16 or float32"
            )
        return np.asarray(vectors / np.maximum(lengths, np.float32(1e-12)), np.float32)
