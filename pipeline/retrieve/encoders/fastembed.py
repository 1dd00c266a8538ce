"""Encoders of fastembed: ONNX models on the CPU, without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.models.onnx_models import listed_model, load_onnx, own_folder, versioned_onnx_name
from darklode.pipeline.retrieve.encoders.local_encoder import LocalEncoder, unit_vectors
from darklode.pipeline.retrieve.encoders.port import identity, short_hash
from darklode.schemas.pooling import EncoderSettings, OnnxModel
from darklode.schemas.shared import DocumentPrompt, QueryPrompt

_POOLINGS = {
    "cls": "cls",
    "cls_token": "cls",
    "mean": "mean",
    "mean_tokens": "mean",
    "lasttoken": "last_token",
}
"""fastembed's names of sentence-transformers' poolings, in its new and its old files."""

_MODULES_OF_FASTEMBED = ("Transformer", "Pooling", "Normalize")


class FastembedModel(OnnxModel, EncoderSettings):
    """An ONNX model of fastembed with the prompts it is used with."""

    kind: Literal["fastembed"] = "fastembed"
    query_prompt: QueryPrompt = ""
    document_prompt: DocumentPrompt = ""

    def encoder_id(self) -> str:
        """The encoder's id; its revision is the hub's commit, or a hash of a local folder's files.

        Raises:
            MissingPart: fastembed is missing, or the model is not on this machine and the settings name no commit.
            SettingsError: an unknown model, or a folder with modules that fastembed does not run.
        """
        return identity(
            self.kind,
            versioned_onnx_name(self, "TextEmbedding"),
            prompts=short_hash(self.query_prompt, self.document_prompt),
            pooling=self.folder_pooling or listed_model(self, "TextEmbedding").implementation,
        )

    @property
    def folder_pooling(self) -> str | None:
        """Pooling of a model in a folder, as fastembed names it; None for a model of fastembed's list.

        Raises:
            MissingPart: the folder does not exist or is incomplete.
            SettingsError: the folder has modules that fastembed does not run.
        """
        own = own_folder(self)
        return _declared_pooling(own.folder) if own else None


def _declared_pooling(folder: Path) -> str:
    """Pooling in sentence-transformers' files of a folder; `disabled` if there are none: the graph pools itself.

    Raises:
        SettingsError: a pooling or a module that fastembed does not have.
    """
    modules = _read_json(folder / "modules.json") or []
    names = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    strange = [name for name in names if name not in _MODULES_OF_FASTEMBED]
    if strange:
        raise SettingsError(f"model {folder}: fastembed cannot run its module {strange[0]}")
    config = _read_json(folder / "1_Pooling" / "config.json")
    if config is None:
        return "disabled"
    flags = [name.removeprefix("pooling_mode_") for name, value in config.items() if value is True]
    mode = str(config.get("pooling_mode", " and ".join(name for name in flags if name != "include_prompt")))
    if mode not in _POOLINGS:
        raise SettingsError(f"model {folder}: fastembed has no pooling {mode} (1_Pooling/config.json)")
    return _POOLINGS[mode]


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class FastembedEncoder(LocalEncoder):
    """A fastembed model. Queries and documents go through `query_embed` and `passage_embed`.

    Prompts of the settings are prepended: for most models fastembed adds none. Vectors are float32 and normalized.

    Raises:
        MissingPart: fastembed or the model is missing, or the model cannot be loaded.
        SettingsError: an unknown model, or a graph that does not fit the folder's pooling.
    """

    def __init__(self, settings: FastembedModel) -> None:
        self._settings = settings
        self._model: Any = load_onnx(settings, "TextEmbedding", settings.folder_pooling)
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
        pooling = self._settings.folder_pooling
        advice = "; add sentence-transformers' 1_Pooling/config.json" if pooling == "disabled" else ""
        model = self._settings.model
        return SettingsError(f"model {model}: the graph does not fit pooling {pooling} ({reason}){advice}")

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
