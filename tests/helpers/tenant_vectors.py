"""A source of vectors of several tenants, all with the same ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.flows.jobs.build_index import steps, update_steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.sharding import Spread
from darklode.pipeline.base.types import Floats
from darklode.pipeline.index.record import IndexOrigin, read_record, record
from darklode.pipeline.index.source import ROW_SCHEMA, StoredVectors
from darklode.schemas.settings import CacheSettings, Settings
from helpers.adapted import model_in
from helpers.indexed import clustered


@dataclass
class TenantVectors:
    """A `VectorSource`; a text's id is its place among its tenant's texts, so that ids repeat between tenants.

    Attributes:
        vectors: each tenant's vectors.
    """

    vectors: dict[str, Floats]
    root: Path
    url: str = "made"

    @property
    def tenants(self) -> tuple[str, ...]:
        return tuple(sorted(self.vectors))

    @property
    def stored_vectors(self) -> StoredVectors:
        stored = StoredVectors(model_in(self.root), CacheSettings(root=str(self.root / "cache")), None)
        rows = self.rows()
        every = np.concatenate([self.vectors[name] for name in self.tenants])
        new = stored.memory().missing(stored.encoder.encoder_id(), rows["content_hash"].combine_chunks())
        if len(new):
            hashes = rows["content_hash"].combine_chunks().take(pa.array(new))
            stored.memory().append(stored.encoder.encoder_id(), hashes, every[new])
        return stored

    @property
    def identity(self) -> dict[str, Any]:
        return {"made": "vectors"}

    def content(self) -> str:
        return str({name: vectors.sum() for name, vectors in self.vectors.items()})

    def encode(self, stage: str, spread: Spread) -> None:
        """Nothing to do: the vectors are there."""

    def rows(self) -> pa.Table:
        parts = []
        for number, name in enumerate(self.tenants):
            ids = [f"t{place:05}" for place in range(len(self.vectors[name]))]
            hashes = [f"{number:02x}{place:030x}" for place in range(len(ids))]
            parts.append(pa.table([[name] * len(ids), ids, ids, hashes], schema=ROW_SCHEMA))
        return pa.concat_tables(parts).combine_chunks()

    def text_tables(self) -> Iterator[pa.Table]:
        raise NotImplementedError("vectors have no texts")

    def queries(self) -> dict[str, list[str]]:
        return {}


def make_source(root: Path, sizes: Sequence[int]) -> TenantVectors:
    """Tenants "a", "b", … with vectors around the same centres."""
    every, ends = clustered(sum(sizes)), np.cumsum(sizes)
    names = "abcdefgh"[: len(sizes)]
    return TenantVectors(dict(zip(names, np.split(every, ends[:-1]), strict=True)), root)


def build(source: TenantVectors, folder: Path, index: Any) -> str:
    """An index of all tenants; returns its folder."""
    run, settings = Run(str(folder)), _settings(source, index)
    for step in steps(run, source, settings, None):
        run.execute(step.plan(run), step.execute)
    record(run, IndexOrigin(source, source.stored_vectors.encoder, settings.index, None))
    return str(folder)


def update(source: TenantVectors, folder: str, index: Any) -> None:
    """Bring an index up to date."""
    run, settings = Run(folder), _settings(source, index)
    for step in update_steps(run, source, settings, read_record(run.store)):
        run.execute(step.plan(run), step.execute)
    record(run, IndexOrigin(source, source.stored_vectors.encoder, settings.index, None))


def _settings(source: TenantVectors, index: Any) -> Settings:
    cache = CacheSettings(root=str(source.root / "cache"))
    return Settings(index=index, cache=cache, semantic_ids={"levels": 2, "codebook_size": 8})  # type: ignore[arg-type]
