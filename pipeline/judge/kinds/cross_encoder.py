"""A cross-encoder as a judge: one model reads query and chunk together and gives a score."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, model_validator

from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import fetch_model, open_model
from darklode.pipeline.base.models.local import architectures, locate, missing_for, versioned_name
from darklode.pipeline.judge.kinds import LedgerKind
from darklode.pipeline.judge.port import ReplyBatch, StreamingJudge, replies_of
from darklode.pipeline.retrieve.encoders.port import identity
from darklode.schemas.paths import FolderOrName
from darklode.schemas.pooling import LocalModel
from darklode.schemas.settings import CacheSettings
from darklode.schemas.shared import LocalModelSection, ModelPath

_BATCHES_AT_ONCE = 8  # handed over, and so kept, together
_DECIMALS = 4
"""What a pair's company in a batch cannot change."""


class CrossEncoderSettings(LocalModelSection, LedgerKind):
    """A cross-encoder on this machine's GPU or CPU."""

    kind: Literal["cross_encoder"] = "cross_encoder"
    model: FolderOrName[str] = Field("", description=ModelPath)

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if not self.model:
            raise ValueError("kind cross_encoder needs judge.model, the name of the model")
        return self

    @property
    def local(self) -> LocalModel:
        """The settings of the model's loader."""
        return LocalModel(**self.model_dump(include={"model", *LocalModelSection.model_fields}))

    def source(self, _cache_settings: CacheSettings) -> CrossEncoderJudge:
        return CrossEncoderJudge(self)

    def own_threshold(self) -> float:
        """See `LedgerKind`: its labels are made by the threshold of the settings, and its id names it."""
        return self.cut

    def fetch(self) -> None:
        fetch_model(self.local)

    def missing(self) -> list[str]:
        """Packages, the model, memory."""
        return missing_for(self.local)


class CrossEncoderJudge(StreamingJudge):
    """Sentence-transformers' `CrossEncoder` with one output: its sigmoid is the probability of being relevant.

    Title, heading and text of the chunk are read as one text. Code that a model brings along is never run, and the
    network is used only for a model that is neither a folder nor whole in the local cache. On several GPUs each has a
    copy of the model in a process of its own. The probability is the model's own and not calibrated.

    Args:
        settings: model, revision, device, batch_size, max_tokens, and the threshold from which a pair is relevant.

    Raises:
        SettingsError: a name without its owner.
    """

    def __init__(self, settings: CrossEncoderSettings) -> None:
        self._threshold = settings.cut
        self._settings = settings.local
        if "/" not in settings.model and locate(self._settings) is None:
            raise SettingsError(
                f"cross-encoder {settings.model}: name a folder, or a model in full (cross-encoder/NAME)"
            )

    @cached_property
    def judge_id(self) -> str:
        """Model with revision, tokens, precision and threshold; fetches a model whose revision is not known yet.

        Raises:
            MissingPart: a package or the model is missing.
        """
        try:
            name = versioned_name(self._settings)
        except MissingPart:
            assert self._model
            name = versioned_name(self._settings)
        tokens = self._settings.max_seq_length or "all"
        return identity("cross_encoder", name, tokens=tokens, dtype=self._settings.dtype, threshold=self._threshold)

    async def stream(self, pairs: pa.Table) -> AsyncIterator[ReplyBatch]:
        """See `StreamingJudge`. The longest pairs come first, so that those of a batch are of one length.

        Raises:
            MissingPart: a package, the model or the GPU is missing, or the model relies on code of its own.
            SettingsError: more tokens than the model has, or a model that gives no single score.
        """
        chunks = view(pairs)
        lengths = pc.add(pc.binary_length(pairs["query"]), pc.binary_length(chunks)).to_numpy()
        order = np.argsort(-lengths, kind="stable")
        step = self._settings.batch_size * _BATCHES_AT_ONCE * len(self._devices)
        for start in range(0, len(order), step):
            rows = order[start : start + step]
            texts = [pairs["query"].take(rows).to_pylist(), chunks.take(rows).to_pylist()]
            scores = await asyncio.to_thread(self._score, list(zip(*texts, strict=True)))
            yield ReplyBatch(rows, self._replies(scores))

    @cached_property
    def _devices(self) -> list[str]:
        return devices(self._settings.device)

    @cached_property
    def _model(self) -> Any:
        model = open_model(self._settings, self._devices[0], "CrossEncoder")
        location = locate(self._settings)
        architecture_names = architectures(location.folder) if location else []
        # Without such a head sentence-transformers draws one at random and says nothing.
        if model.num_labels != 1 or not any(name.endswith("ForSequenceClassification") for name in architecture_names):
            raise SettingsError(f"model {self._settings.model} is no cross-encoder with a single score")
        return model

    @cached_property
    def _pool(self) -> Any:
        if len(self._devices) == 1:
            return None
        pool = self._model.start_multi_process_pool(self._devices)
        weakref.finalize(self, type(self._model).stop_multi_process_pool, pool)
        return pool

    def _score(self, texts: list[tuple[str, str]]) -> NDArray[np.float64]:
        from torch.nn import Sigmoid

        size = self._settings.batch_size
        scores = self._model.predict(
            texts, batch_size=size, pool=self._pool, activation_fn=Sigmoid(), show_progress_bar=False
        )
        return np.asarray(scores, dtype=np.float64).round(_DECIMALS)

    def _replies(self, scores: NDArray[np.float64]) -> pa.Table:
        probability = pa.array(scores, mask=~np.isfinite(scores))
        columns = {
            "relevant": pc.greater_equal(probability, self._threshold),
            "probability": probability.cast(pa.float32()),
            "error": pc.if_else(pc.is_null(probability), "the model's score is not a number", None).cast(pa.string()),
        }
        return replies_of(columns, len(scores))


KIND = CrossEncoderSettings
