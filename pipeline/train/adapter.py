"""An adapter as it lies in its folder: what it says of itself (`adapter.json`), and its encoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from logging import ERROR, getLogger
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.heads import Layers
    from darklode.pipeline.train.vectors import Floats

RECORD, FOLDER, ALONE = "adapter.json", "query_encoder", "adapter"
SAVED = f"{FOLDER}/darklode.json"
"""What the encoder was saved from, and how its vectors differ: no part of its weights."""

HEAD = f"{ALONE}/adapter.safetensors"
"""A head alone: layers with GELU between them, on the base's unit vectors."""

_ID = re.compile(r"[0-9a-f]{16}")

Facts = dict[str, Any]


@dataclass(frozen=True)
class Adapter:
    """A folder of `darklode adapt`.

    Attributes:
        store: the folder or prefix.
        facts: what it says of itself.
        of_base: gives the base's vectors of queries where the adapter is a head alone; None: the base is loaded.
    """

    store: Store
    facts: Facts
    of_base: Callable[[Sequence[str]], Floats] | None = None

    @classmethod
    def open(cls, url: str) -> Adapter:
        """The adapter at a folder or prefix.

        Raises:
            ArtifactError: there is none, or one that was not finished.
        """
        store = Store(url)
        facts = read_record(store)
        if not facts:
            raise ArtifactError(f"{store.url} holds no finished adapter; make one with `darklode adapt RUN --out …`")
        return cls(store, facts)

    @property
    def id(self) -> str:
        """Names it, and a folder.

        Raises:
            ArtifactError: it is none that Darklode gives.
        """
        name = str(self.facts["id"])
        if not _ID.fullmatch(name):
            raise ArtifactError(f"{self.store.path(RECORD)} is damaged: {name!r} is no adapter's id")
        return name

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return str(self.facts["tenant"])

    @property
    def tenants(self) -> list[str]:
        """Whom it may serve: whose it is, and those whom it was released for besides."""
        return [self.tenant, *self.facts.get("shared_with", [])]

    @property
    def light(self) -> bool:
        """Whether it is a head alone, its base being wherever that lies: one of many tenants' that share it."""
        return bool(self.facts.get("form") == "head")

    @property
    def files(self) -> str:
        """The folder whose files decide its vectors."""
        return ALONE if self.light else FOLDER

    @property
    def ships(self) -> bool:
        """Whether something else than the base is handed over."""
        return bool(self.facts["shipped"] != "base")

    @property
    def base(self) -> SentenceTransformersSettings:
        """The encoder that was adapted."""
        return SentenceTransformersSettings.model_validate(self.facts["base"]["settings"])

    def encode(self, texts: Sequence[str]) -> Floats:
        """Vectors of queries by the folder as it lies there, shape (len(texts), dimensions); of blank ones zero."""
        if self.light:
            from darklode.pipeline.train.heads import apply_layers

            vectors = apply_layers(self.layers, (self.of_base or _base(self.base.model_dump_json()))(texts))
        else:
            vectors = np.asarray(self.model.encode(list(texts), show_progress_bar=False), np.float32)
        vectors[[not text.strip() for text in texts]] = 0
        return vectors

    @property
    def layers(self) -> Layers:
        """Of a head, as it lies beside the encoder; none where there is no head, or the base is handed over."""
        from safetensors.numpy import load

        from darklode.pipeline.train.heads import layers_of

        data = self.store.read(HEAD)
        return [] if data is None else layers_of(load(data))

    @cached_property
    def model(self) -> Any:
        """The folder as sentence-transformers loads it, on the processor."""
        from sentence_transformers import SentenceTransformer

        getLogger("sentence_transformers").setLevel(ERROR)  # it would tell of the prompt that the adapter has
        logging: Any = import_module("transformers.utils").logging
        logging.disable_progress_bar()  # it would break into Darklode's own output
        with self.on_disk() as folder:
            return SentenceTransformer(str(folder), device="cpu")

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """Its encoder's folder on this machine; a copy that is gone afterwards where it lies elsewhere."""
        if self.store.local is not None:
            yield self.store.local / FOLDER
            return
        with TemporaryDirectory(prefix="darklode-adapter-") as scratch:
            for name in self.store.sizes(FOLDER, recursive=True):
                path = Path(scratch, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.store.read(name) or b"")
            yield Path(scratch, FOLDER)


@lru_cache(maxsize=1)
def _base(settings: str) -> Callable[[Sequence[str]], Floats]:
    """What gives the base's vectors of queries: thousands of adapters have one base."""
    return SentenceTransformersSettings.model_validate_json(settings).load().encode_queries


def read_record(store: Store) -> Facts:
    """What the adapter at a place says of itself; nothing where there is none that can be read."""
    return store.read_object(RECORD)
