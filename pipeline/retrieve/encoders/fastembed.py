"""Encoders of fastembed: ONNX models on the CPU, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.models.onnx_models import listed_model, load_onnx, own_folder, versioned_onnx_name
from darklode.pipeline.retrieve.encoders.local_encoder import LocalEncoder, unit_vectors
from darklode.pipeline.retrieve.encoders.port import identity, short_hash
from darklode.schemas.pooling import EncoderSettings, OnnxModel
from darklode.schemas.shared import DocumentPrompt, QueryPrompt


class FastembedModel(OnnxModel, EncoderSettings):
    """An ONNX model of fastembed with the prompts it is used with."""

    kind: Literal["fastembed"] = "fastembed"
    query_prompt: QueryPrompt = ""
    document_prompt: DocumentPrompt = ""
    pooling: Literal["cls", "mean", "last_token", "disabled"] | None = Field(
        None,
        description="How token vectors become one vector; disabled: the ONNX graph does it. Required for a model of "
        "your own; null for a model of fastembed's list, which says it.",
    )

    def encoder_id(self) -> str:
        """The encoder's id; its revision is the hub's commit, or a hash of a local folder's files.

        Raises:
            MissingPart: fastembed is missing, or the model is not on this machine and the settings name no commit.
            SettingsError: an unknown model, or `pooling` missing for a folder or set for a model of the list.
        """
        return identity(
            self.kind,
            versioned_onnx_name(self, "TextEmbedding"),
            prompts=short_hash(self.query_prompt, self.document_prompt),
            pooling=self.pooling_id(),
        )

    def pooling_id(self) -> str:
        """The pooling, or the class that determines it: fastembed has changed it between releases.

        Raises:
            MissingPart: fastembed or the folder is missing.
            SettingsError: as for `encoder_id`.
        """
        if own_folder(self):
            if self.pooling is None:
                raise SettingsError(f"model {self.model} is a folder: set pooling to cls, mean, last_token or disabled")
            return self.pooling
        if self.pooling:
            raise SettingsError(f"pooling {self.pooling}: {self.model} is no folder, and fastembed knows its pooling")
        return listed_model(self, "TextEmbedding").implementation


class FastembedEncoder(LocalEncoder):
    """A fastembed model. Queries and documents go through `query_embed` and `passage_embed`.

    Prompts of the settings are prepended: for most models fastembed adds none. Vectors are float32 and normalized.

    Raises:
        MissingPart: fastembed or the model is missing, or the model cannot be loaded.
        SettingsError: an unknown model, or a pooling that does not fit it.
    """

    def __init__(self, settings: FastembedModel) -> None:
        self._settings = settings
        settings.pooling_id()  # checked before a download
        self._model: Any = load_onnx(settings, "TextEmbedding", settings.pooling)
        self.encoder_id = settings.encoder_id()
        self.dimensions = self._measure_dimensions()

    @property
    def _texts_per_pass(self) -> int:
        return self._settings.batch_size

    def _measure_dimensions(self) -> int:
        try:
            shape = self._embed(["dimensions", "of two texts"], queries=False).shape
        except ValueError as error:
            raise self._misfit(str(error).splitlines()[0]) from None
        if len(shape) != 2:
            raise self._misfit(f"vectors of shape {shape[1:]}")
        return int(shape[1])

    def _misfit(self, reason: str) -> SettingsError:
        return SettingsError(f"pooling {self._settings.pooling} does not fit {self._settings.model} ({reason})")

    def _encode(self, texts: Sequence[str], *, queries: bool, ids: Sequence[str] | None = None) -> NDArray[np.float32]:
        if not len(texts):
            return np.zeros((0, self.dimensions), np.float32)
        advice = "the ONNX file overflows; use one of another precision"
        return unit_vectors(self._embed(texts, queries=queries), texts, ids, model=self._settings.model, advice=advice)

    def _embed(self, texts: Sequence[str], *, queries: bool) -> NDArray[np.float32]:
        """Vectors as the model gives them."""
        settings = self._settings
        prompt = settings.query_prompt if queries else settings.document_prompt
        embed = self._model.query_embed if queries else self._model.passage_embed
        return np.asarray(list(embed([prompt + text for text in texts], batch_size=settings.batch_size)), np.float32)
