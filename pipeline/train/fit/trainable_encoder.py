"""The encoder as a trainable model: which tensors are trained, its query vectors, and how it takes weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.sentence_transformers import encode_texts, with_prompt
from darklode.pipeline.train.types import Weights
from darklode.schemas.adaptation import AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
    from darklode.pipeline.train.data.dataset import QuerySet


START = "start"
"""Name of the fixed map after the encoder if training does not start from the base; it is not trained."""


def trainable(model: nn.Module, adapt: AdaptSettings) -> dict[str, nn.Parameter]:
    """Freeze a transformer except for the parameters that the method trains; returns those by name.

    `full`: all but a pooler that no vector depends on. `top_n`: the last layers and the norm after them. `lora`: what
    `add_lora` added. Parameter counts match DevRev-Search, Table 5.

    Args:
        model: a transformers model with `num_hidden_layers` in its configuration.
        adapt: method and top_layers.

    Raises:
        SettingsError: the model has no such layers.
    """
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name if adapt.method == "lora" else "pooler" not in name.split("."))
    if adapt.method == "top_n":
        _freeze_below(model, adapt.top_layers)
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def layers_of(model: nn.Module) -> str:
    """Name of the list of transformer layers.

    Raises:
        SettingsError: no list is as long as the configuration says.
    """
    n_layers = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return str(name)
    raise SettingsError(
        f"{type(model).__name__} has no known list of layers: top_n, lora and fewer layers are not supported"
    )


def _freeze_below(model: nn.Module, n: int) -> None:
    """Freeze everything before the last n layers."""
    prefix, count = layers_of(model), len(model.get_submodule(layers_of(model)))  # type: ignore[arg-type]
    if n > count:
        raise SettingsError(f"adapt.top_layers {n}: the encoder has only {count} layers")
    first = f"{prefix}.{count - n}."
    for name, parameter in model.named_parameters():
        if name.startswith(first):
            return
        parameter.requires_grad_(False)


def add_lora(model: nn.Module, adapt: AdaptSettings) -> Any:
    """Add LoRA (Hu et al. 2021) to linear layers; returns a function that merges it. B is 0, so it starts as the base.

    Raises:
        SettingsError: no linear layer has such a name.
    """
    from peft import LoraConfig, LoraModel

    inside = layers_of(model)
    names = [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear) and name.startswith(inside)
    ]
    target_names = [name for name in names if not adapt.target_modules or name.endswith(adapt.target_modules)]
    if not target_names:
        ends = sorted({name.rpartition(".")[2] for name in names})
        raise SettingsError(
            f"adapt.target_modules {', '.join(adapt.target_modules)}: layers of this encoder end in {', '.join(ends)}"
        )
    config = LoraConfig(
        r=adapt.lora_rank, lora_alpha=adapt.lora_alpha or adapt.lora_rank, lora_dropout=0.0, target_modules=target_names
    )
    return LoraModel(model, {"default": config}, "default")


class TrainableEncoder:
    """A loaded encoder in training; its vectors equal those of `SentenceTransformersEncoder`, without the cache.

    Dropout is off, so that a batch is the same step in one process and in several.

    Args:
        loaded: the sentence-transformers model in float32.
        settings: prompt, truncation and batch size.
        adapt: the method.
    """

    def __init__(self, loaded: Any, settings: SentenceTransformersSettings, adapt: AdaptSettings) -> None:
        self.loaded, self._settings = loaded, settings
        loaded.requires_grad_(False)
        self._lora = add_lora(loaded[0].auto_model, adapt) if adapt.method == "lora" else None
        self.trained = trainable(loaded[0].auto_model, adapt)
        self.start: Tensor | None = None
        self._base = self._copies()
        for module in loaded.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0

    def _copies(self) -> dict[str, Tensor]:
        return {name: tensor.detach().cpu().clone() for name, tensor in self.trained.items()}

    def features(self, texts: list[str]) -> dict[str, Tensor]:
        """Tokenized queries."""
        return self._tokens(with_prompt(self._settings, texts, queries=True))

    def _tokens(self, texts: list[str]) -> dict[str, Tensor]:
        features: dict[str, Tensor] = self.loaded.preprocess(texts)
        return features

    def unit(self, vectors: Tensor) -> Tensor:
        """The model's vectors, truncated, mapped by the start weights if there are any, and normalized."""
        truncated = vectors[:, : self._settings.truncate_dim].float()
        return functional.normalize(
            truncated if self.start is None else truncated @ self.start.T.to(truncated.device), dim=1
        )

    def vectors(self, queries: QuerySet) -> Floats:
        """Current unit vectors of queries; zero for a blank query."""
        non_empty = [row for row, text in enumerate(queries.texts) if text.strip()]
        result = np.zeros(queries.vectors.shape, np.float32)
        if non_empty:
            result[non_empty] = self._encode([queries.texts[row] for row in non_empty], queries=True)
        return result

    def document_vectors(self, texts: list[str]) -> Floats:
        """Current unit vectors of documents."""
        return self._encode(texts, queries=False)

    def documents(self, texts: list[str]) -> Tensor:
        """The same with gradients; gradient checkpointing per `batch_size` texts."""
        size, prompted = self._settings.batch_size, with_prompt(self._settings, texts, queries=False)
        parts = [prompted[start : start + size] for start in range(0, len(prompted), size)]
        if len(parts) == 1:
            return self._forward(parts[0])
        return torch.cat([checkpoint(self._forward, part, use_reentrant=False) for part in parts])

    def _forward(self, texts: list[str]) -> Tensor:
        from sentence_transformers.util import batch_to_device

        tokens = batch_to_device(self._tokens(texts), self.loaded.device)
        return self.unit(self.loaded(tokens)["sentence_embedding"])

    def _encode(self, texts: list[str], *, queries: bool) -> Floats:
        was = self.loaded.training
        vectors = encode_texts(self.loaded, self._settings, texts, queries=queries)
        self.loaded.train(was)
        return np.asarray(self.unit(torch.from_numpy(vectors)).numpy(), np.float32)

    def state(self) -> Weights:
        """Copies of the trained tensors by name, and the start map."""
        start_map = {} if self.start is None else {START: self.start.numpy().copy()}
        return start_map | {name: tensor.detach().float().cpu().numpy().copy() for name, tensor in self.trained.items()}

    def restore(self, weights: Weights, share: float = 1.0) -> None:
        """Set trained weights at a share of the way from the base; for LoRA, B is scaled by the share."""
        with torch.no_grad():
            for name, parameter in self.trained.items():
                base, tensor = self._base[name], torch.from_numpy(weights[name]).reshape(parameter.shape)
                if ".lora_" in name:
                    parameter.copy_(tensor * share if ".lora_B." in name else tensor)
                else:
                    parameter.copy_(tensor if share == 1 else torch.lerp(base.float(), tensor, share))
        self.start = None
        if START in weights:
            start_weight = torch.from_numpy(weights[START])
            self.start = torch.lerp(torch.eye(len(start_weight)), start_weight, share)

    def parameters(self) -> Iterator[nn.Parameter]:
        """The trained parameters."""
        yield from self.trained.values()

    def merge(self) -> None:
        """Merge LoRA into its layers and remove it; nothing else changes."""
        if self._lora is not None:
            self._lora.merge_and_unload()

    def lora_config(self, base: str) -> bytes:
        """The JSON that peft needs to load the LoRA tensors."""
        assert self._lora is not None
        lora_config = self._lora.peft_config["default"].to_dict() | {
            "base_model_name_or_path": base,
            "inference_mode": True,
        }
        plain = {name: sorted(value) if isinstance(value, set) else value for name, value in lora_config.items()}
        return json.dumps(plain, indent=1, sort_keys=True, default=str).encode()
