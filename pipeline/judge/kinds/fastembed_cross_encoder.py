"""Cross-encoder judge on ONNX: fastembed's `TextCrossEncoder`, without torch."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.special import expit

from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.models.onnx_models import fetch_onnx, load_onnx, missing_for_onnx, versioned_onnx_name
from darklode.pipeline.judge.kinds import LedgerKind
from darklode.pipeline.judge.pair_scores import PairScoringJudge
from darklode.pipeline.retrieve.encoders.port import identity
from darklode.schemas.paths import FolderOrName
from darklode.schemas.pooling import OnnxModel
from darklode.schemas.settings import CacheSettings
from darklode.schemas.shared import ModelPath, OnnxModelSection


class FastembedCrossEncoderSettings(OnnxModelSection, LedgerKind):
    """An ONNX cross-encoder that fastembed runs on this machine's CPU, without torch."""

    kind: Literal["fastembed_cross_encoder"] = "fastembed_cross_encoder"
    model: FolderOrName[str] = Field("", description=ModelPath)

    @model_validator(mode="after")
    def _requires_model(self) -> Self:
        if not self.model:
            raise ValueError("kind fastembed_cross_encoder needs judge.model, such as Xenova/ms-marco-MiniLM-L-6-v2")
        return self

    @property
    def onnx(self) -> OnnxModel:
        """The settings that load the model."""
        return OnnxModel(**self.model_dump(include={*OnnxModel.model_fields}))

    def source(self, _cache_settings: CacheSettings) -> FastembedCrossEncoderJudge:
        return FastembedCrossEncoderJudge(self)

    def own_threshold(self) -> float:
        """The threshold of the settings, which is part of the judge's id."""
        return self.cut

    def fetch(self) -> None:
        fetch_onnx(self.onnx, "TextCrossEncoder")

    def missing(self) -> list[str]:
        """Missing package or model; a model that fastembed does not know."""
        return missing_for_onnx(self.onnx, "TextCrossEncoder")


class FastembedCrossEncoderJudge(PairScoringJudge):
    """The sigmoid of a fastembed cross-encoder's score is the (uncalibrated) probability of relevance.

    Args:
        settings: model, batch size and threshold.
    """

    def __init__(self, settings: FastembedCrossEncoderSettings) -> None:
        super().__init__(settings.cut)
        self._settings = settings.onnx

    @cached_property
    def judge_id(self) -> str:
        """Model with revision, and threshold; downloads a model whose revision is unknown.

        Raises:
            MissingPart: fastembed or the model is missing.
            SettingsError: a model that fastembed does not know.
        """
        try:
            name = versioned_onnx_name(self._settings, "TextCrossEncoder")
        except MissingPart:
            fetch_onnx(self._settings, "TextCrossEncoder")
            name = versioned_onnx_name(self._settings, "TextCrossEncoder")
        return identity("fastembed_cross_encoder", name, threshold=self._threshold)

    @property
    def _pairs_per_pass(self) -> int:
        return self._settings.batch_size

    @cached_property
    def _model(self) -> Any:
        model = load_onnx(self._settings, "TextCrossEncoder")
        shape = _output_shape(model)
        if shape != (1, 1):  # fastembed takes the first output, which of several labels may be any
            raise SettingsError(
                f"model {self._settings.model} is not a cross-encoder with a single score (output {shape})"
            )
        return model

    def _score(self, texts: list[tuple[str, str]]) -> NDArray[np.float64]:
        scores = list(self._model.rerank_pairs(texts, batch_size=self._settings.batch_size))
        return np.asarray(expit(np.array(scores, np.float64)))


def _output_shape(model: Any) -> tuple[int, ...]:
    """Shape of the ONNX file's first output for one pair."""
    session, tokenizer = model.model.model, model.model.tokenizer
    encoding = tokenizer.encode("query", "chunk")
    columns = {
        "input_ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "token_type_ids": encoding.type_ids,
    }
    names = {node.name for node in session.get_inputs()}
    inputs = {name: np.array([values], np.int64) for name, values in columns.items() if name in names}
    return tuple(np.shape(session.run(None, inputs)[0]))


KIND = FastembedCrossEncoderSettings
