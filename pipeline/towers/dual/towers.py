"""The two towers: each an encoder of its own with a projection of its own, W^Q and W^D of ScalingNote, Eq. 3 and 4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.encoders.sentence_transformers import encode_texts, with_prompt
from darklode.pipeline.towers.dual import decoder
from darklode.pipeline.towers.dual.prompt import Prompt
from darklode.pipeline.towers.dual.views import Features, document_features, mean_of
from darklode.pipeline.towers.start import mapped, unit
from darklode.pipeline.towers.student import cut
from darklode.pipeline.train.encoder import add_lora, trainable
from darklode.pipeline.train.folder import modules
from darklode.pipeline.train.processes import mine
from darklode.pipeline.train.weights import Floats, Weights
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.towers import DualSettings, View

TRANSFORMER, POOLING, PROJECTION = range(3)


class Both(nn.Module):
    """Encodes queries and documents in one pass, as DistributedDataParallel wants it.

    Args:
        query: a sentence-transformers model of transformer, pooling and projection.
        document: likewise.
        views: of a document.
    """

    def __init__(self, query: Any, document: Any, views: Sequence[View]) -> None:
        super().__init__()
        self.query, self.document, self._views = query, document, views
        self.processor = self.tokenizer = query.tokenizer

    def forward(self, features: tuple[Features, Features]) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors of queries (n, dimensions), of views (views, m, dimensions), and which documents have each view."""
        queries = self.query(dict(features[0]))["sentence_embedding"]
        given = dict(features[1])
        masks: dict[str, Tensor] = {name: given.pop(f"{name}_mask") for name in ("title", "content")}
        every = masks["title"] | masks["content"]
        whole, found, there = self.document[POOLING](self.document[TRANSFORMER](given)), [], []
        for view in self._views:
            mask = masks.get(view, every)
            pooled = mean_of(whole["token_embeddings"], mask) if view in masks else whole["sentence_embedding"]
            found.append(self.document[PROJECTION]({"sentence_embedding": pooled})["sentence_embedding"])
            there.append(mask.any(dim=1))
        return queries, torch.stack(found), torch.stack(there)


class Towers:
    """Two loaded encoders that learn; nothing is dropped out.

    Args:
        encoder: what both begin as, with its prompts.
        dual: method, views and nested dimensions.
        adapt: rank, alpha and targets of LoRA.

    Raises:
        SettingsError: its vectors are shorter than the towers' are to be.
    """

    def __init__(self, encoder: SentenceTransformersSettings, dual: DualSettings, adapt: AdaptSettings) -> None:
        self.settings = encoder.model_copy(update={"dtype": "float32"})
        self._lora: list[Any] = []
        self._reader: decoder.Reader | None = None
        self.trained: dict[str, nn.Parameter] = {}
        self._dual = dual
        self.query, self.document = (self._opened(name, dual, adapt) for name in ("query", "document"))
        self.model = _holding(Both(self.query, self.document, dual.views), str(self.query.device))

    def _opened(self, name: str, dual: DualSettings, adapt: AdaptSettings) -> Any:
        from sentence_transformers import SentenceTransformer

        loaded = self._loaded(name)
        if name == "query" and dual.layers:
            cut(loaded[TRANSFORMER].auto_model, dual.layers)
        has, dimensions = self._pooled(loaded, ["dimensions"], queries=True).shape[1], dual.nested[-1]
        if dimensions > has:
            raise SettingsError(f"dual.nested {dimensions}: {self.settings.model} has only {has} numbers")
        projection = modules().Dense(has, dimensions, bias=False, activation_function=nn.Identity())
        parts = [loaded[TRANSFORMER], loaded[POOLING], projection]
        made: Any = SentenceTransformer(modules=parts, device=str(loaded.device))
        made.default_prompt_name = None
        how = adapt.model_copy(update={"method": dual.method})
        if dual.method == "lora":
            self._lora.append(add_lora(made[TRANSFORMER].auto_model, how))
        learned = trainable(made[TRANSFORMER].auto_model, how) | {"projection": projection.linear.weight}
        self.trained |= {f"{name}.{one}": parameter for one, parameter in learned.items()}
        for module in made.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return made

    def _loaded(self, name: str) -> Any:
        """The encoder as it is; a decoder with its prompt: its form is seen from whether it is causal."""
        from sentence_transformers import SentenceTransformer

        loaded: Any = load_model(self.settings, mine(devices(self.settings.device)))
        if not decoder.is_causal(loaded):
            return loaded
        if name == "query":
            return SentenceTransformer(modules=decoder.asked(loaded), device=str(loaded.device))
        self._reader = decoder.Reader.of(loaded, Prompt.load(self._dual.prompt))
        return SentenceTransformer(modules=self._reader.parts, device=str(loaded.device))

    def checkpoint(self) -> None:
        """Keep what enters a layer alone; what is in it is computed again on the way back."""
        for tower in (self.query, self.document):
            model = tower[TRANSFORMER].auto_model
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})  # the second name is that of transformers before 5.20

    def parameters(self) -> Iterator[nn.Parameter]:
        """What learns."""
        yield from self.trained.values()

    def begin(self, texts: Sequence[str], queries: Sequence[str]) -> None:
        """Both projections begin as the principal directions of some vectors, so that each prefix keeps the most.

        The towers then begin near what their encoder is; from random projections they would begin at nothing. That of a
        query tower of fewer layers begins as the map of its vectors that is nearest to those of the whole encoder.

        Args:
            texts: of documents, whole, without prompt.
            queries: some queries, without prompt.
        """
        with torch.no_grad():
            encoder = self._loaded("query") if self._dual.layers else self.query
            whole = self._pooled(encoder, queries, queries=True)
            found = unit(np.concatenate([self._pooled(self.document, texts, queries=False), whole]))
            _, directions = np.linalg.eigh(found.T @ found)
            size = self.trained["query.projection"].shape[0]
            kept = directions[:, ::-1][:, :size].T
            kept = kept * np.where(kept[np.arange(size), np.abs(kept).argmax(axis=1)] < 0, -1, 1)[:, None]
            self.trained["document.projection"].copy_(torch.from_numpy(kept.astype(np.float32)))
            like = kept
            if self._dual.layers:
                like = mapped(self._pooled(self.query, queries, queries=True), unit(whole @ kept.T))
            self.trained["query.projection"].copy_(torch.from_numpy(like.astype(np.float32)))

    def query_features(self, texts: Sequence[str]) -> Features:
        """Tokens of queries."""
        found: Features = self.query.preprocess(with_prompt(self.settings, texts, queries=True))
        return {name: one for name, one in found.items() if isinstance(one, Tensor)}

    def document_features(self, titles: Sequence[str | None], contents: Sequence[str | None]) -> Features:
        """Tokens of documents, with masks of their views."""
        if self._reader:
            return self._reader.features(self.document, titles, contents, self.settings.document_prompt)
        return document_features(self.document, titles, contents, self.settings.document_prompt)

    def encode(self, texts: Sequence[str], *, queries: bool) -> Floats:
        """Unit vectors as the served towers give them, shape (len(texts), dimensions)."""
        tower, was = self.query if queries else self.document, self.model.training
        found = encode_texts(tower, self.settings, texts, queries=queries, normalize_embeddings=True)
        self.model.train(was)
        return found

    def _pooled(self, tower: Any, texts: Sequence[str], *, queries: bool) -> Floats:
        """What a tower's transformer and pooling give, before any layer that follows them."""
        from sentence_transformers import SentenceTransformer

        part = SentenceTransformer(modules=[tower[TRANSFORMER], tower[POOLING]], device=str(tower.device))
        return encode_texts(part, self.settings, texts, queries=queries)

    def state(self) -> Weights:
        """Copies of what learns, by name."""
        return {name: one.detach().float().cpu().numpy().copy() for name, one in self.trained.items()}

    def take(self, weights: Weights) -> None:
        """Take trained weights."""
        with torch.no_grad():
            for name, one in self.trained.items():
                one.copy_(torch.from_numpy(np.array(weights[name])).reshape(one.shape))

    def served(self) -> Any:
        """What is handed over: a Router of both, with their prompts, whose vectors have length 1. LoRA is merged."""
        from sentence_transformers import SentenceTransformer

        for one in self._lora:
            one.merge_and_unload()
        self._lora = []
        normalize = modules().Normalize
        router = modules().Router.for_query_document(
            query_modules=[*self.query, normalize()], document_modules=[*self.document, normalize()]
        )
        prompts = {"query": self.settings.query_prompt, "document": self.settings.document_prompt}
        return SentenceTransformer(modules=[router], device="cpu", prompts=prompts)


def _holding(both: Both, device: str) -> Any:
    """A sentence-transformers model around both, as the trainer wants one."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(modules=[both], device=device)
