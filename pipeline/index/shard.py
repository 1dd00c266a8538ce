"""Shards of consecutive indexed texts, for work on their vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from darklode.pipeline.base.artifacts import Tables, key_of
from darklode.pipeline.base.sharding import SHARDS_PER_PLACE, split_evenly
from darklode.pipeline.base.types import Floats
from darklode.pipeline.index.source import StoredVectors
from darklode.pipeline.index.vector_file import VECTORS_PER_BLOCK
from darklode.schemas.serving_tables import INDEXED_TEXTS


@dataclass(frozen=True)
class VectorShard:
    """A shard of indexed texts, in whole blocks.

    Attributes:
        tables: `indexed_texts`, and other tables that the work reads.
        stored_vectors: the vectors, at a root that all workers can reach.
        stage: stage that the work belongs to.
        basis: id of what was trained.
        first, last: range of texts; `last` is exclusive.
    """

    tables: Tables
    stored_vectors: StoredVectors
    stage: str
    basis: str
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.stage} of texts {self.first} to {self.last - 1}"

    @property
    def folder(self) -> str:
        content = (
            self.tables.content(INDEXED_TEXTS.name),
            self.stored_vectors.identity,
            self.basis,
            self.first,
            self.last,
        )
        return f"progress/{self.stage}/{key_of(*content)}"

    def blocks(self) -> Iterator[Floats]:
        """Vectors, shape (b, dimensions), in the order of the texts."""
        hashes = self.tables.read(INDEXED_TEXTS.name, ["content_hash"])["content_hash"]
        shard_hashes = hashes.slice(self.first, self.last - self.first)
        return (block for _, block in self.stored_vectors.blocks(shard_hashes, VECTORS_PER_BLOCK))


def make_shards(
    tables: Tables, stored_vectors: StoredVectors, stage: str, basis: str, places: int
) -> list[VectorShard]:
    """Split all texts evenly over the workers."""
    total = tables.rows(INDEXED_TEXTS.name)
    blocks = -(-total // VECTORS_PER_BLOCK)
    shards = split_evenly(blocks, places if places == 1 else SHARDS_PER_PLACE * places)
    return [
        VectorShard(tables, stored_vectors, stage, basis, low * VECTORS_PER_BLOCK, min(high * VECTORS_PER_BLOCK, total))
        for low, high in shards
    ]
