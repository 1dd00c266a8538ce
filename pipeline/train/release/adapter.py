"""An adapter folder: its record (`adapter.json`) and its encoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib import import_module
from logging import ERROR, getLogger
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.base.artifacts import Store, key_of
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.base.types import Facts
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.types import TENSORS_FILE

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Floats
    from darklode.pipeline.train.types import Layers

RECORD_FILE, ENCODER_FOLDER, ADAPTER_FOLDER = "adapter.json", "query_encoder", "adapter"
SAVED_RECORD_FILE = f"{ENCODER_FOLDER}/darklode.json"
"""Which encoder was saved and how its vectors differ from training; not part of the hashed weights."""

HEAD_FILE = f"{ADAPTER_FOLDER}/{TENSORS_FILE}"
"""A head alone: linear layers with GELU between them, applied to the base's unit vectors."""

MAPPED = "mapped"
"""`shipped` of a model swap: its head maps the vectors of another encoder than the base."""

_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Adapter:
    """A folder written by `darklode adapt`.

    Attributes:
        store: the folder or prefix.
        facts: its record.
        encode_base: gives base vectors of queries if the adapter is a head alone; None: the base is loaded.
    """

    store: Store
    facts: Facts
    encode_base: Callable[[Sequence[str]], Floats] | None = None

    @classmethod
    def open(cls, url: str) -> Adapter:
        """Open the adapter in a folder or below a prefix.

        Raises:
            ArtifactError: there is none, or it was not finished.
        """
        store = Store(url)
        facts = read_record(store)
        if not facts:
            raise ArtifactError(
                f"{store.url} contains no finished adapter; create one with `darklode adapt RUN --out …`"
            )
        return cls(store, facts)

    @property
    def id(self) -> str:
        """Identifier, also used as a folder name.

        Raises:
            ArtifactError: the recorded id has an invalid form.
        """
        name = str(self.facts["id"])
        if not _ID.fullmatch(name):
            raise ArtifactError(f"{self.store.path(RECORD_FILE)} is damaged: {name!r} is not an adapter id")
        return name

    @property
    def tenant(self) -> str:
        """The tenant it was trained for."""
        return str(self.facts["tenant"])

    @property
    def tenants(self) -> list[str]:
        """Tenants it may serve: its own and those it was released for."""
        return [self.tenant, *self.facts.get("shared_with", [])]

    def require_tenant(self, tenant: str) -> None:
        """Check that it may encode a tenant's queries.

        Raises:
            DoesNotFit: it is for other tenants.
        """
        if tenant not in self.tenants:
            raise DoesNotFit(
                f"{self.store.url} is for tenant {', '.join(self.tenants)}, not for {tenant}; use the base encoder or "
                f"an adapter of {tenant}"
            )

    @property
    def light(self) -> bool:
        """Whether it is a head without a copy of the base, as for one of many tenants that share a base."""
        return bool(self.facts.get("form") == "head")

    @property
    def files(self) -> str:
        """The folder whose files determine its vectors."""
        return ADAPTER_FOLDER if self.light else ENCODER_FOLDER

    @property
    def ships(self) -> bool:
        """Whether it differs from the base."""
        return bool(self.facts["shipped"] != "base")

    @property
    def base(self) -> SentenceTransformersSettings:
        """The encoder that was adapted."""
        return SentenceTransformersSettings.model_validate(self.facts["base"]["settings"])

    def encode(self, texts: Sequence[str]) -> Floats:
        """Query vectors by the saved folder, shape (len(texts), dimensions); zero for blank queries."""
        if self.light:
            from darklode.pipeline.train.fit.heads import apply_layers

            vectors = apply_layers(self.layers, (self.encode_base or _base(self.base.model_dump_json()))(texts))
        else:
            vectors = np.asarray(self.model.encode(list(texts), show_progress_bar=False), np.float32)
        vectors[[not text.strip() for text in texts]] = 0
        return vectors

    def require_intact(self) -> None:
        """Check that the files are those that the record describes, which a save that was killed does not leave.

        Raises:
            ArtifactError: they are not.
        """
        if not self._is_intact:
            raise ArtifactError(
                f"{self.store.path(self.files)} is not what {RECORD_FILE} describes: it is damaged, or its save was "
                "interrupted; run the command that made the adapter again"
            )

    @cached_property
    def _is_intact(self) -> bool:
        recorded = self.facts.get("weights")  # unknown while the record is being made
        return recorded is None or weights_hash(self.store, self.files) == recorded

    @cached_property
    def layers(self) -> Layers:
        """Layers of the head; empty without a head, or if the base was kept.

        Raises:
            ArtifactError: the files do not match the record.
        """
        from safetensors.numpy import load

        from darklode.pipeline.train.fit.heads import layers_of

        self.require_intact()
        data = self.store.read(HEAD_FILE)
        return [] if data is None else layers_of(load(data))

    @cached_property
    def model(self) -> Any:
        """The folder loaded with sentence-transformers, on the CPU.

        Raises:
            ArtifactError: the files do not match the record.
        """
        from sentence_transformers import SentenceTransformer

        self.require_intact()
        getLogger("sentence_transformers").setLevel(ERROR)  # hides the message about the adapter's prompt
        logging: Any = import_module("transformers.utils").logging
        logging.disable_progress_bar()  # it would interrupt Darklode's own output
        with self.on_disk() as folder:
            return SentenceTransformer(str(folder), device="cpu")

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """A local path of the encoder folder; a temporary copy if it is stored remotely."""
        if self.store.local is not None:
            yield self.store.local / ENCODER_FOLDER
            return
        with TemporaryDirectory(prefix="darklode-adapter-") as scratch:
            for name in self.store.sizes(ENCODER_FOLDER, recursive=True):
                path = Path(scratch, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.store.read(name) or b"")
            yield Path(scratch, ENCODER_FOLDER)


@lru_cache(maxsize=1)
def _base(settings: str) -> Callable[[Sequence[str]], Floats]:
    """Base vectors; loaded once and shared, since thousands of adapters can have the same base."""
    return SentenceTransformersSettings.model_validate_json(settings).load().encode_queries


def weights_hash(store: Store, folder: str = ENCODER_FOLDER, beside: Sequence[str] = (SAVED_RECORD_FILE,)) -> str:
    """Fingerprint of a folder by file names and contents, without the files `beside`."""
    files = sorted(set(store.sizes(folder, recursive=True)) - set(beside))
    return key_of({name: sha256(store.read(name) or b"").hexdigest() for name in files})


def read_record(store: Store) -> Facts:
    """Read an adapter's record; empty if there is none or it is unreadable."""
    return store.read_object(RECORD_FILE)
