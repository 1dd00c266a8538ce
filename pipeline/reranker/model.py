"""A cross-encoder in training: loaded, or initialized from the weights of a bi-encoder with a new scoring head."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import open_model
from darklode.pipeline.base.models.local import architectures, fetch_hint, locate, own_code, versioned_name
from darklode.schemas.pooling import LocalModel

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Doubles
    from darklode.pipeline.train.types import Weights

_CLASSIFIER = "ForSequenceClassification"
"""Ending of the architecture of models with a head that scores a pair."""


@dataclass(frozen=True)
class InitialReranker:
    """The model that training starts from.

    Attributes:
        settings: a cross-encoder, or a bi-encoder (a sentence-transformers encoder).
        seed: seed of the new head's random weights.
    """

    settings: LocalModel
    seed: int

    @property
    def is_cross_encoder(self) -> bool:
        """Whether the model scores pairs before training.

        Raises:
            MissingPart: the model is not on this machine.
        """
        model = locate(self.settings)
        if model is None:
            raise MissingPart(f"model {self.settings.model} is not on this machine: {fetch_hint(self.settings)}")
        return any(name.endswith(_CLASSIFIER) for name in architectures(model.folder))

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change its scores."""
        return {"model": versioned_name(self.settings), "tokens": self.settings.max_seq_length or "all"}

    def open(self) -> TrainableReranker:
        """The model in float32; a new head depends on the seed.

        Raises:
            MissingPart: the model is not on this machine, or needs its own code.
            SettingsError: it is neither a cross-encoder with one score nor a transformer with a known head.
        """
        settings = self.settings.model_copy(update={"dtype": "float32"})
        device = devices(settings.device)[0]
        if self.is_cross_encoder:
            loaded = open_model(settings, device, "CrossEncoder")
            if loaded.num_labels != 1:
                raise SettingsError(f"{settings.model} has {loaded.num_labels} outputs; a reranker has a single score")
        else:
            loaded = _with_new_head(settings, device, self.seed)
        return TrainableReranker(loaded, settings.batch_size)


def _with_new_head(settings: LocalModel, device: str, seed: int) -> Any:
    """A cross-encoder with a bi-encoder's transformer; pooler and head are new where the model has none.

    Query and text are one input with separators and, where the model has them, segment embeddings, as the model was
    pretrained; a bi-encoder's own pooling is not used.
    """
    from sentence_transformers import CrossEncoder
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    logging: Any = import_module("transformers.utils").logging
    logging.disable_progress_bar()  # it would disturb Darklode's own progress
    model = locate(settings)
    assert model is not None
    if code := own_code(model.folder):
        raise MissingPart(f"model {settings.model} needs its own code ({code}), which Darklode never runs")
    torch.manual_seed(seed)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # the warning about a new head
    try:
        classifier = AutoModelForSequenceClassification.from_pretrained(str(model.folder), num_labels=1)
        tokenizer = AutoTokenizer.from_pretrained(str(model.folder))
    except (OSError, ValueError, KeyError) as error:
        raise SettingsError(f"no cross-encoder can be made of {settings.model}: {error}") from error
    finally:
        logging.set_verbosity(verbosity)
    with tempfile.TemporaryDirectory(prefix="darklode-reranker-") as scratch:
        classifier.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        loaded = CrossEncoder(scratch, num_labels=1, device=device, local_files_only=True)
    if settings.max_seq_length:
        loaded.max_seq_length = settings.max_seq_length
    return loaded


class TrainableReranker:
    """A loaded cross-encoder in training. Dropout is disabled, so that a resumed training takes the same steps.

    Attributes:
        loaded: the sentence-transformers `CrossEncoder` in float32; changed in place.

    Args:
        loaded: the cross-encoder.
        batch_size: pairs per forward pass of `scores`.
    """

    def __init__(self, loaded: Any, batch_size: int) -> None:
        self.loaded, self._batch_size = loaded, batch_size
        for module in self._classifier.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0

    @property
    def _classifier(self) -> nn.Module:
        model: nn.Module = self.loaded.model
        return model

    def features(self, queries: Sequence[str], texts: Sequence[str]) -> dict[str, Tensor]:
        """Tokenize pairs as `CrossEncoder.predict` does."""
        tokens = self.loaded.tokenizer(
            list(queries),
            list(texts),
            padding=True,
            truncation="longest_first",
            max_length=self.loaded.max_seq_length,
            return_tensors="pt",
        )
        return dict(tokens)

    def logits(self, features: dict[str, Tensor]) -> Tensor:
        """Scores of tokenized pairs, shape (n_pairs,), with gradient."""
        scores: Tensor = self._classifier(**features).logits
        return scores.view(-1)

    def scores(self, queries: Sequence[str], texts: Sequence[str]) -> Doubles:
        """Scores (logits) of pairs, shape (n_pairs,)."""
        pairs = list(zip(queries, texts, strict=True))
        if not pairs:
            return np.empty(0)
        logits = self.loaded.predict(
            pairs, activation_fn=nn.Identity(), batch_size=self._batch_size, show_progress_bar=False
        )
        return np.asarray(logits, np.float64)

    def parameters(self) -> Iterator[nn.Parameter]:
        """The trained parameters: all."""
        return self._classifier.parameters()

    def state(self) -> Weights:
        """Copies of the parameters by name."""
        return {
            name: parameter.detach().float().cpu().numpy().copy()
            for name, parameter in self._classifier.named_parameters()
        }

    def restore(self, weights: Weights) -> None:
        """Set the parameters to saved ones; tensors read from rows have other shapes and the same values."""
        with torch.no_grad():
            for name, parameter in self._classifier.named_parameters():
                parameter.copy_(torch.from_numpy(weights[name]).reshape(parameter.shape))
