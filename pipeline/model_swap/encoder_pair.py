"""The two encoders of a model swap, and their vectors of a run's texts and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.model_swap.vectors import PairedVectors, SwapVectors
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.schemas.model_swap_tables import SWAP_TEXTS

HELD_OUT_SQL = """
    SELECT query FROM tower_queries WHERE split IN ('unseen', 'test') ORDER BY query
"""

MAX_QUERIES = 20_000
"""Maximum number of training queries, as of fitted texts: more are encoded at a price and change a map little."""

SPLIT_SQL = f"SELECT query FROM tower_queries WHERE split = $1 ORDER BY md5(query), query LIMIT {MAX_QUERIES}"


@dataclass(frozen=True)
class EncoderPair:
    """The encoder of the index and the one that replaces it for queries.

    Attributes:
        old: encoder of the index, with the run as its only source.
        new: encoder of the queries to come, with the same source and cache.
    """

    old: BaseEncoder
    new: BaseEncoder

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a vector."""
        return {"old": self.old.identity, "new": self.new.identity}

    def queries(self, texts: Sequence[str]) -> PairedVectors:
        """Both vectors of queries; missing ones are computed."""
        return PairedVectors(self.new.queries(texts), self.old.queries(texts))

    def documents(self, tenant: str, text_ids: Sequence[str]) -> PairedVectors:
        """Both vectors of texts; missing ones are computed, the old ones first.

        Args:
            tenant: tenant of the texts.
            text_ids: ids of the run's texts, in the order of the result.
        """
        passages = self.old.sources[0].passage_rows(tenant, text_ids)
        rows = pc.index_in(np.asarray(text_ids, object), passages["chunk_id"].combine_chunks())
        passages = passages.take(rows)
        hashed = passages["content_hash"].combine_chunks(), view(passages).combine_chunks()
        old, new = (encoder.documents(*hashed) for encoder in (self.old, self.new))
        return PairedVectors(new, old)


def tenant_of(tables: Tables) -> str:
    """The tenant of `tower_queries`."""
    return str(tables.sql("SELECT min(tenant) AS tenant FROM tower_queries")["tenant"][0].as_py())


def load_vectors(tables: Tables, pair: EncoderPair) -> SwapVectors:
    """Vectors of the sampled texts, and of training and validation queries.

    Args:
        tables: `swap_texts` and `tower_queries`.
        pair: the encoders.
    """
    rows = tables.read(SWAP_TEXTS.name, ["text_id", "fit_order"])
    order = rows["fit_order"].to_numpy()
    is_fitted = ~np.isnan(order)
    fitted = np.flatnonzero(is_fitted)[np.argsort(order[is_fitted])]
    train, validation = (
        pair.queries(tables.sql(SPLIT_SQL, [split])["query"].to_pylist()) for split in ("train", "validation")
    )
    return SwapVectors(pair.documents(tenant_of(tables), rows["text_id"].to_pylist()), fitted, train, validation)


def held_out_queries(tables: Tables) -> list[str]:
    """Queries that neither fit nor select a map: held out, or test queries of the run."""
    return list(tables.sql(HELD_OUT_SQL)["query"].to_pylist())
