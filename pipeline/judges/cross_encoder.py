"""A cross-encoder as a judge: one model reads query and chunk together and gives a score."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.corpora import view
from pipeline.encoders.identity import identity
from pipeline.encoders.local_models import architectures, locate
from pipeline.encoders.model_loading import devices, open_model, versioned_name
from pipeline.errors import MissingPart, SettingsError
from pipeline.judges.asker import Answered
from pipeline.judges.port import REPLIES
from schemas.settings import MemberSettings, SentenceTransformersEncoder

_BATCHES_AT_ONCE = 8
_DECIMALS = 4
"""What a pair's company in a batch cannot change."""


class CrossEncoderJudge:
    """Sentence-transformers' `CrossEncoder` with one output: its sigmoid is the probability of being relevant.

    Title, heading and text of the chunk are read as one text. Code that a model brings along is never run, and the
    network is used only for a model that is neither a folder nor whole in the local cache. On several GPUs each has a
    copy of the model in a process of its own. The probability is the model's own and not calibrated.

    Args:
        settings: model, revision, device, batch_size, max_tokens, and the threshold from which a pair is relevant.

    Raises:
        SettingsError: a name without its owner.
    """

    def __init__(self, settings: MemberSettings) -> None:
        self._threshold = settings.cut
        self._settings = SentenceTransformersEncoder(
            kind="sentence_transformers",
            **settings.model_dump(include={"model", "revision", "device", "batch_size", "max_tokens"}),
        )
        if "/" not in settings.model and locate(self._settings) is None:
            raise SettingsError(f"judge.model {settings.model}: name a folder, or a model in full (cross-encoder/NAME)")

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
        tokens = self._settings.max_tokens or "all"
        return identity("cross_encoder", name, tokens=tokens, dtype=self._settings.dtype, threshold=self._threshold)

    async def ask(self, pairs: pa.Table) -> AsyncIterator[Answered]:
        """See `Asker`. The longest pairs come first, so that those of a batch are of one length.

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
            yield Answered(rows, self._replies(scores))

    @cached_property
    def _devices(self) -> list[str]:
        return devices(self._settings.device)

    @cached_property
    def _model(self) -> Any:
        model = open_model(self._settings, self._devices[0], "CrossEncoder")
        found = locate(self._settings)
        named = architectures(found.folder) if found else []
        # Without such a head sentence-transformers draws one at random and says nothing.
        if model.num_labels != 1 or not any(name.endswith("ForSequenceClassification") for name in named):
            raise SettingsError(f"judge.model {self._settings.model} is no cross-encoder with a single score")
        return model

    @cached_property
    def _pool(self) -> Any:
        if len(self._devices) == 1:
            return None
        pool = self._model.start_multi_process_pool(self._devices)
        weakref.finalize(self, type(self._model).stop_multi_process_pool, pool)
        return pool

    def _score(self, texts: list[tuple[str, str]]) -> NDArray[np.float64]:
        from torch.nn import Sigmoid  # noqa: PLC0415 (an optional package, and heavy)

        size = self._settings.batch_size
        scores = self._model.predict(
            texts, batch_size=size, pool=self._pool, activation_fn=Sigmoid(), show_progress_bar=False
        )
        return np.asarray(scores, dtype=np.float64).round(_DECIMALS)

    def _replies(self, scores: NDArray[np.float64]) -> pa.Table:
        probability = pa.array(scores, mask=~np.isfinite(scores))
        said = {
            "relevant": pc.greater_equal(probability, self._threshold),
            "probability": probability.cast(pa.float32()),
            "error": pc.if_else(pc.is_null(probability), "the model's score is not a number", None).cast(pa.string()),
        }
        arrays = [said.get(field.name, pa.nulls(len(scores), field.type)) for field in REPLIES]
        return pa.Table.from_arrays(arrays, schema=REPLIES)
