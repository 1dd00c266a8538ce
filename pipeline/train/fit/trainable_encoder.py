"""An encoder in training: selects the trained parameters, encodes with the current weights, saves and restores them."""

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


START_TENSOR, START_BIAS = "start", "start_bias"
"""Names, among the saved weights, of the whitening that training starts from (`adapt.init: whitened`).

The map is applied to the vectors and stays fixed during training. Renaming it would make saved weights unreadable.
"""


def trainable(model: nn.Module, adapt: AdaptSettings) -> dict[str, nn.Parameter]:
    """Freeze all parameters of a transformer except those that the method trains, and return the trained ones by name.

    - `full` trains everything except the pooler, because no sentence vector depends on it.
    - `top_n` trains the last `top_layers` layers and the normalization after them.
    - `lora` trains the matrices that `add_lora` added.

    The number of trained parameters matches DevRev-Search, Table 5.

    Args:
        model: a transformers model with `num_hidden_layers` in its configuration.
        adapt: settings `method` and `top_layers`.

    Raises:
        SettingsError: the model has fewer layers than `top_layers`, or no known list of layers.
    """
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name if adapt.method == "lora" else "pooler" not in name.split("."))
    if adapt.method == "top_n":
        _freeze_below(model, adapt.top_layers)
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def layers_of(model: nn.Module) -> str:
    """Return the module path of the list of transformer layers, for example `encoder.layer`.

    Raises:
        SettingsError: no `ModuleList` of the model has as many entries as its configuration has layers.
    """
    n_layers = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return str(name)
    raise SettingsError(
        f"{type(model).__name__} has no known list of layers: top_n, lora and fewer layers are not supported"
    )


def _freeze_below(model: nn.Module, n: int) -> None:
    """Freeze the embeddings and all layers except the last n."""
    layers_path = layers_of(model)
    n_layers = len(model.get_submodule(layers_path))  # type: ignore[arg-type]
    if n > n_layers:
        raise SettingsError(f"adapt.top_layers {n}: the encoder has only {n_layers} layers")
    first_trained_prefix = f"{layers_path}.{n_layers - n}."
    # Parameters are listed in the order of the forward pass: everything before the first trained layer is frozen.
    for name, parameter in model.named_parameters():
        if name.startswith(first_trained_prefix):
            return
        parameter.requires_grad_(False)


def add_lora(model: nn.Module, adapt: AdaptSettings) -> Any:
    """Add LoRA matrices (Hu et al. 2021) to the linear layers and return peft's `LoraModel`, which can merge them.

    B starts at 0, so the encoder's vectors do not change until it is trained.

    Args:
        model: a transformers model; changed in place.
        adapt: settings `lora_rank`, `lora_alpha` (default: the rank) and `target_modules` (default: all linear layers).

    Raises:
        SettingsError: no linear layer's name ends with one of `target_modules`.
    """
    from peft import LoraConfig, LoraModel

    layers_path = layers_of(model)
    linear_paths = [
        path for path, module in model.named_modules() if isinstance(module, nn.Linear) and path.startswith(layers_path)
    ]
    target_paths = [path for path in linear_paths if not adapt.target_modules or path.endswith(adapt.target_modules)]
    if not target_paths:
        last_names = sorted({path.rpartition(".")[2] for path in linear_paths})
        raise SettingsError(
            f"adapt.target_modules {', '.join(adapt.target_modules)}: "
            f"layers of this encoder end in {', '.join(last_names)}"
        )
    config = LoraConfig(
        r=adapt.lora_rank, lora_alpha=adapt.lora_alpha or adapt.lora_rank, lora_dropout=0.0, target_modules=target_paths
    )
    return LoraModel(model, {"default": config}, "default")


class TrainableEncoder:
    """A loaded encoder in training.

    It encodes as `SentenceTransformersEncoder` does (same prompts, truncation and normalization), but with the current
    weights and without the embedding cache. Dropout is disabled, so that a batch gives the same step in one process
    and in several.

    Attributes:
        loaded: the sentence-transformers model.
        trained: the trained parameters by name; `state` and `restore` cover these only.
        start: whitening that training starts from, applied to unit vectors: shapes (dimensions, dimensions) and
            (dimensions,); None: no map.

    Args:
        loaded: the sentence-transformers model in float32; changed in place.
        settings: prompts, truncation and batch size.
        adapt: decides which parameters are trained.
    """

    def __init__(self, loaded: Any, settings: SentenceTransformersSettings, adapt: AdaptSettings) -> None:
        self.loaded = loaded
        self._settings = settings
        loaded.requires_grad_(False)
        self._lora = add_lora(loaded[0].auto_model, adapt) if adapt.method == "lora" else None
        self.trained = trainable(loaded[0].auto_model, adapt)
        self.start: tuple[Tensor, Tensor] | None = None
        self._base = self._copies()
        for module in loaded.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0

    def _copies(self) -> dict[str, Tensor]:
        return {name: tensor.detach().cpu().clone() for name, tensor in self.trained.items()}

    def features(self, texts: list[str]) -> dict[str, Tensor]:
        """Tokenize queries, with the query prompt."""
        return self._tokens(with_prompt(self._settings, texts, queries=True))

    def _tokens(self, texts: list[str]) -> dict[str, Tensor]:
        features: dict[str, Tensor] = self.loaded.preprocess(texts)
        return features

    def unit(self, vectors: Tensor) -> Tensor:
        """Truncate and normalize the model's vectors; apply `start` if there is one, and normalize again."""
        unit_vectors = functional.normalize(vectors[:, : self._settings.truncate_dim].float(), dim=1)
        if self.start is None:
            return unit_vectors
        weight, bias = (tensor.to(unit_vectors.device) for tensor in self.start)
        return functional.normalize(functional.linear(unit_vectors, weight, bias), dim=1)

    def vectors(self, queries: QuerySet) -> Floats:
        """Encode queries with the current weights: unit vectors (n_queries, dimensions), zero for a blank query."""
        non_blank_rows = [row for row, text in enumerate(queries.texts) if text.strip()]
        query_vectors = np.zeros(queries.vectors.shape, np.float32)
        if non_blank_rows:
            query_vectors[non_blank_rows] = self._encode([queries.texts[row] for row in non_blank_rows], queries=True)
        return query_vectors

    def document_vectors(self, texts: list[str]) -> Floats:
        """Encode documents with the current weights: unit vectors, without gradients."""
        return self._encode(texts, queries=False)

    def documents(self, texts: list[str]) -> Tensor:
        """Encode documents with gradients; more than one `batch_size` of texts uses gradient checkpointing."""
        size = self._settings.batch_size
        prompted_texts = with_prompt(self._settings, texts, queries=False)
        text_batches = [prompted_texts[start : start + size] for start in range(0, len(prompted_texts), size)]
        if len(text_batches) == 1:
            return self._forward(text_batches[0])
        return torch.cat([checkpoint(self._forward, batch, use_reentrant=False) for batch in text_batches])

    def _forward(self, texts: list[str]) -> Tensor:
        from sentence_transformers.util import batch_to_device

        tokens = batch_to_device(self._tokens(texts), self.loaded.device)
        return self.unit(self.loaded(tokens)["sentence_embedding"])

    def _encode(self, texts: list[str], *, queries: bool) -> Floats:
        was_training = self.loaded.training  # encoding switches the model to evaluation mode
        vectors = encode_texts(self.loaded, self._settings, texts, queries=queries)
        self.loaded.train(was_training)
        return np.asarray(self.unit(torch.from_numpy(vectors)).numpy(), np.float32)

    def state(self) -> Weights:
        """Copy the trained tensors by name, and the map `start` as `START_TENSOR` and `START_BIAS`."""
        start = () if self.start is None else self.start
        maps = {name: tensor.numpy().copy() for name, tensor in zip((START_TENSOR, START_BIAS), start, strict=False)}
        return maps | {name: tensor.detach().float().cpu().numpy().copy() for name, tensor in self.trained.items()}

    def restore(self, weights: Weights, share: float = 1.0) -> None:
        """Set the trained parameters by interpolating between the base weights and saved weights.

        Args:
            weights: saved by `state`; a parameter that they lack gets the base's.
            share: 0 gives the base encoder, 1 the saved weights. For LoRA only B is scaled, which scales the update BA.
        """
        with torch.no_grad():
            for name, parameter in self.trained.items():
                base = self._base[name]
                saved = torch.from_numpy(weights[name]).reshape(parameter.shape) if name in weights else base
                if ".lora_" in name:
                    parameter.copy_(saved * share if ".lora_B." in name else saved)
                else:
                    parameter.copy_(saved if share == 1 else torch.lerp(base.float(), saved, share))
        self.start = None
        if START_TENSOR in weights:
            weight, bias = (torch.from_numpy(weights[name]) for name in (START_TENSOR, START_BIAS))
            self.start = torch.lerp(torch.eye(len(weight)), weight, share), share * bias.reshape(-1)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over the trained parameters."""
        yield from self.trained.values()

    def merge(self) -> None:
        """Merge the LoRA matrices into their layers and remove them; does nothing for the other methods."""
        if self._lora is not None:
            self._lora.merge_and_unload()

    def lora_config(self, base: str) -> bytes:
        """Return the content of `adapter_config.json`, which peft needs to load the LoRA tensors.

        Args:
            base: name of the encoder that the tensors belong to.
        """
        assert self._lora is not None
        lora_config = self._lora.peft_config["default"].to_dict() | {
            "base_model_name_or_path": base,
            "inference_mode": True,
        }
        # JSON has no sets; sorting them makes the same configuration give the same bytes.
        json_config = {name: sorted(value) if isinstance(value, set) else value for name, value in lora_config.items()}
        return json.dumps(json_config, indent=1, sort_keys=True, default=str).encode()
