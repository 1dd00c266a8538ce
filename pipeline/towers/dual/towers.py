"""The query and document towers: two encoders, each with a projection (W^Q and W^D of ScalingNote, Eq. 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.encoders.sentence_transformers import encode_texts, with_prompt
from darklode.pipeline.towers.dual import decoder
from darklode.pipeline.towers.dual.prompt import DecoderPrompt
from darklode.pipeline.towers.dual.views import Features, document_features, mean_of
from darklode.pipeline.towers.initialization import fit_linear_map, unit
from darklode.pipeline.towers.student import keep_layers
from darklode.pipeline.train.fit.distributed import own_device
from darklode.pipeline.train.fit.trainable_encoder import add_lora, trainable
from darklode.pipeline.train.release.modules import modules
from darklode.pipeline.train.types import Weights
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.towers import DualSettings, View

TRANSFORMER, POOLING, PROJECTION = range(3)
"""Positions of the modules in a tower."""


class TwoTowerModel(nn.Module):
    """Encodes queries and documents in one forward call, as DistributedDataParallel requires.

    Args:
        query: the query tower, a sentence-transformers model of transformer, pooling and projection.
        document: the document tower, with the same kinds of modules.
        views: the parts of a document that get a vector each: `title`, `content` or `all`.
    """

    def __init__(self, query: Any, document: Any, views: Sequence[View]) -> None:
        super().__init__()
        self.query = query
        self.document = document
        self._views = views
        self.processor = self.tokenizer = query.tokenizer

    def forward(self, features: tuple[Features, Features]) -> tuple[Tensor, Tensor, Tensor]:
        """Encode n tokenized queries and m tokenized documents with the masks of their views.

        Returns:
            Query vectors (n, dimensions), view vectors (views, m, dimensions) and whether each document has each view
            (views, m). The vectors are not normalized.
        """
        queries = self.query(dict(features[0]))["sentence_embedding"]
        document_features = dict(features[1])
        masks: dict[str, Tensor] = {name: document_features.pop(f"{name}_mask") for name in ("title", "content")}
        any_mask = masks["title"] | masks["content"]
        token_features = self.document[POOLING](self.document[TRANSFORMER](document_features))
        view_vectors: list[Tensor] = []
        has_view: list[Tensor] = []
        for view in self._views:
            mask = masks.get(view, any_mask)
            pooled = (
                mean_of(token_features["token_embeddings"], mask)
                if view in masks
                else token_features["sentence_embedding"]
            )
            view_vectors.append(self.document[PROJECTION]({"sentence_embedding": pooled})["sentence_embedding"])
            has_view.append(mask.any(dim=1))
        return queries, torch.stack(view_vectors), torch.stack(has_view)


class DualTowers:
    """The query and document towers in training, both initialized from one encoder and without dropout.

    Attributes:
        settings: the initial encoder in float32.
        query, document: the towers as sentence-transformers models.
        model: both as one model for the trainer.
        trained: the trained parameters, by name with the prefix `query.` or `document.`.

    Args:
        encoder: the initial encoder with its prompts.
        dual: method, views and Matryoshka dimensions.
        adapt: rank, alpha and target modules of LoRA.

    Raises:
        SettingsError: the encoder's vectors are shorter than the largest Matryoshka dimension.
    """

    def __init__(self, encoder: SentenceTransformersSettings, dual: DualSettings, adapt: AdaptSettings) -> None:
        self.settings = encoder.model_copy(update={"dtype": "float32"})
        self._lora: list[Any] = []
        self._reader: decoder.PromptedReader | None = None
        self.trained: dict[str, nn.Parameter] = {}
        self._dual = dual
        self.query, self.document = (self._open_tower(name, dual, adapt) for name in ("query", "document"))
        self.model = _combined_model(TwoTowerModel(self.query, self.document, dual.views), str(self.query.device))

    def _open_tower(self, name: str, dual: DualSettings, adapt: AdaptSettings) -> Any:
        """Load the tower `query` or `document`, add its projection and select its trained parameters."""
        from sentence_transformers import SentenceTransformer

        loaded = self._load_tower(name)
        if name == "query" and dual.query_tower_layers:
            keep_layers(loaded[TRANSFORMER].auto_model, dual.query_tower_layers)
        n_pooled = self._pool(loaded, ["dimensions"], queries=True).shape[1]  # any text shows the length of a vector
        dimensions = dual.matryoshka_dims[-1]
        if dimensions > n_pooled:
            raise SettingsError(f"dual.matryoshka_dims {dimensions}: {self.settings.model} has only {n_pooled} numbers")
        projection = modules().Dense(n_pooled, dimensions, bias=False, activation_function=nn.Identity())
        tower_modules = [loaded[TRANSFORMER], loaded[POOLING], projection]
        tower: Any = SentenceTransformer(modules=tower_modules, device=str(loaded.device))
        tower.default_prompt_name = None
        method_settings = adapt.model_copy(update={"method": dual.method})
        if dual.method == "lora":
            self._lora.append(add_lora(tower[TRANSFORMER].auto_model, method_settings))
        tower_parameters = trainable(tower[TRANSFORMER].auto_model, method_settings)
        tower_parameters |= {"projection": projection.linear.weight}
        self.trained |= {f"{name}.{path}": parameter for path, parameter in tower_parameters.items()}
        for module in tower.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return tower

    def _load_tower(self, name: str) -> Any:
        """Load the initial encoder; a causal model reads through the tokenizer that adds the prompt (see `decoder`)."""
        from sentence_transformers import SentenceTransformer

        loaded: Any = load_model(self.settings, own_device(devices(self.settings.device)))
        if not decoder.is_causal(loaded):
            return loaded
        if name == "query":
            return SentenceTransformer(modules=decoder.prompt_tokens(loaded), device=str(loaded.device))
        self._reader = decoder.PromptedReader.from_model(loaded, DecoderPrompt.load(self._dual.prompt))
        return SentenceTransformer(modules=self._reader.parts, device=str(loaded.device))

    def enable_gradient_checkpointing(self) -> None:
        """Enable gradient checkpointing in every layer of both towers."""
        for tower in (self.query, self.document):
            model = tower[TRANSFORMER].auto_model
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})  # transformers before 5.20 has the second name

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over the trained parameters."""
        yield from self.trained.values()

    def initialize(self, texts: Sequence[str], queries: Sequence[str]) -> None:
        """Initialize both projections with the principal directions of a sample of vectors.

        Each prefix of a projected vector then keeps as much of the variance as possible, which suits Matryoshka
        dimensions, and the towers start close to their encoder; random projections would lose what it learned. The
        projection of a query tower with fewer layers starts as the linear map from its vectors to those of the full
        encoder.

        Args:
            texts: document texts without prompt.
            queries: query texts without prompt.
        """
        with torch.no_grad():
            encoder = self._load_tower("query") if self._dual.query_tower_layers else self.query
            query_vectors = self._pool(encoder, queries, queries=True)
            unit_vectors = unit(np.concatenate([self._pool(self.document, texts, queries=False), query_vectors]))
            _, eigenvectors = np.linalg.eigh(unit_vectors.T @ unit_vectors)  # in the order of ascending eigenvalues
            size = self.trained["query.projection"].shape[0]
            projection = eigenvectors[:, ::-1][:, :size].T
            # An eigenvector's sign is arbitrary: the entry of the largest magnitude is made positive.
            largest_entries = projection[np.arange(size), np.abs(projection).argmax(axis=1)]
            projection = projection * np.where(largest_entries < 0, -1, 1)[:, None]
            self.trained["document.projection"].copy_(torch.from_numpy(projection.astype(np.float32)))
            query_projection = projection
            if self._dual.query_tower_layers:
                query_projection = fit_linear_map(
                    self._pool(self.query, queries, queries=True), unit(query_vectors @ projection.T)
                )
            self.trained["query.projection"].copy_(torch.from_numpy(query_projection.astype(np.float32)))

    def query_features(self, texts: Sequence[str]) -> Features:
        """Tokenize queries, with the query prompt."""
        features: Features = self.query.preprocess(with_prompt(self.settings, texts, queries=True))
        return {name: feature for name, feature in features.items() if isinstance(feature, Tensor)}

    def document_features(self, titles: Sequence[str | None], contents: Sequence[str | None]) -> Features:
        """Tokenize documents; returns the tokens and the masks `title_mask` and `content_mask` of their views.

        Args:
            titles: title of each document; None: it has none.
            contents: content of each document; None: it has none.
        """
        if self._reader:
            return self._reader.features(self.document, titles, contents, self.settings.document_prompt)
        return document_features(self.document, titles, contents, self.settings.document_prompt)

    def encode(self, texts: Sequence[str], *, queries: bool) -> Floats:
        """Encode texts as the released model does: unit vectors, shape (len(texts), dimensions)."""
        tower = self.query if queries else self.document
        was_training = self.model.training  # encoding switches the model to evaluation mode
        encoded = encode_texts(tower, self.settings, texts, queries=queries, normalize_embeddings=True)
        self.model.train(was_training)
        return encoded

    def _pool(self, tower: Any, texts: Sequence[str], *, queries: bool) -> Floats:
        """Encode texts with a tower's transformer and pooling only, without its projection."""
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(modules=[tower[TRANSFORMER], tower[POOLING]], device=str(tower.device))
        return encode_texts(encoder, self.settings, texts, queries=queries)

    def state(self) -> Weights:
        """Copy the trained tensors by name."""
        return {name: tensor.detach().float().cpu().numpy().copy() for name, tensor in self.trained.items()}

    def restore(self, weights: Weights) -> None:
        """Set the trained tensors to weights saved by `state`."""
        with torch.no_grad():
            for name, parameter in self.trained.items():
                parameter.copy_(torch.from_numpy(np.array(weights[name])).reshape(parameter.shape))

    def merged_query_tower(self) -> Any:
        """Build the released model: a sentence-transformers Router of both towers with prompts and normalization.

        LoRA matrices are merged in place; the towers cannot be trained further afterwards.
        """
        from sentence_transformers import SentenceTransformer

        for lora_model in self._lora:
            lora_model.merge_and_unload()
        self._lora = []
        normalize = modules().Normalize
        router = modules().Router.for_query_document(
            query_modules=[*self.query, normalize()], document_modules=[*self.document, normalize()]
        )
        prompts = {"query": self.settings.query_prompt, "document": self.settings.document_prompt}
        return SentenceTransformer(modules=[router], device="cpu", prompts=prompts)


def _combined_model(both: TwoTowerModel, device: str) -> Any:
    """Wrap both towers in a sentence-transformers model, the only kind that its trainer accepts."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(modules=[both], device=device)
