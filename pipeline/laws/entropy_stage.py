"""The stage `entropy`: contrastive entropy of an encoder over all labelled pairs of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.bootstrap import interval
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.sharding import Pieces, Spread, here, split_evenly
from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.laws.entropy import sample_negatives
from darklode.pipeline.laws.points import N_NEGATIVES
from darklode.pipeline.retrieve.encoders.caching import ensure_cached, hash_queries
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.data.encoding import Encoding, prefetch_vectors
from darklode.pipeline.train.data.labels import Labels
from darklode.pipeline.train.data.pairs import searched_texts
from darklode.pipeline.train.data.sources import BUILD_TABLES, LOG_TABLES, TrainingSource
from darklode.pipeline.train.data.vectors import FrozenIndex
from darklode.schemas.law_tables import CONTRASTIVE_ENTROPY, ENTROPY_MEANS

ENTROPY_STAGE = Stage("contrastive_entropy", 3, BUILD_TABLES, (CONTRASTIVE_ENTROPY.name, ENTROPY_MEANS.name))
MINED_ENTROPY_STAGE = ENTROPY_STAGE.reading(*LOG_TABLES)
"""The same stage for a run mined from a log."""

UNMEASURED_REASON = "text not searched, query in no split, or no unlabelled text to compare with"
"""Reason in the funnel for labelled pairs without an entropy."""

RESAMPLES = 2000
"""Number of bootstrap resamples per interval."""

QUERIES_PER_BLOCK = 1 << 10
"""Queries per block. The vectors of a block are always computed together, because the last bits of a vector can depend
on its batch: the result must not depend on where a block is computed.
"""


@dataclass(frozen=True)
class EntropySystem:
    """The encoder to measure.

    Attributes:
        name: the encoder's name as given on the command line.
        base: encodes the texts, and the queries if `encode` is None.
        encode: encodes queries to unit vectors, for example with an adapter; None for the base.
        temperature: temperature of the softmax.
        weights: identity of the adapter; None without one.
    """

    name: str
    base: BaseEncoder
    encode: Callable[[Sequence[str]], Floats] | None
    temperature: float
    weights: Any = None

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change an entropy besides texts and labels."""
        system = {"name": self.name, "temperature": self.temperature, "adapter": self.weights}
        return {"system": system | {"base": self.base.identity}}

    def vectors(self, texts: list[str]) -> Floats:
        """Unit vectors of queries, shape (n_texts, dimensions)."""
        return self.encode(texts) if self.encode else self.base.queries(texts)


@dataclass(frozen=True)
class EntropyShard:
    """A tenant's queries from `first` up to but excluding `last`, ordered by id; measured in any process.

    Attributes:
        source: the run with texts, queries and labels.
        system: the encoder to measure.
        tenant: the tenant whose pairs are measured.
        first: number of the first query; a multiple of `QUERIES_PER_BLOCK`.
        last: number after the last query.
        seed: seed of the sampled negatives.
    """

    source: TrainingSource
    system: EntropySystem
    tenant: str
    first: int
    last: int
    seed: int

    @property
    def name(self) -> str:
        return f"entropy of {self.tenant} queries {self.first} to {self.last - 1}"

    @property
    def folder(self) -> str:
        content = (ENTROPY_STAGE.version, self.source.content(), self.tenant, self.first, self.last, self.seed)
        return f"progress/{ENTROPY_STAGE.name}/{key_of(*content, self.system.identity)}"


def entropies(
    source: TrainingSource,
    output: Output,
    system: EntropySystem,
    spread: Spread = here,
    *,
    tenants: list[str],
    seed: int,
) -> None:
    """Measure every pair labelled as relevant; one unit per tenant.

    Args:
        source: the run with texts, queries and labels.
        output: receives `contrastive_entropy` and `contrastive_entropy_means`.
        system: the encoder to measure.
        spread: runs the shards, in this process or on other machines.
        tenants: the tenants to measure.
        seed: seed of the sampled negatives and of the bootstrap intervals.
    """
    fingerprints = {tenant: key_of(source.content(), tenant) for tenant in tenants}
    missing = [tenant for tenant, fingerprint in fingerprints.items() if not output.is_done(tenant, fingerprint)]
    shards = {tenant: _shards(source, system, tenant, spread, seed) for tenant in missing}
    results = spread(measure_shard, [shard for tenant_shards in shards.values() for shard in tenant_shards])
    n_measured = 0
    n_positives = 0
    for number, (tenant, fingerprint) in enumerate(fingerprints.items()):
        output.progress(number, len(tenants), tenant)
        with output.unit(tenant, fingerprint) as unit:
            if not unit.done:
                pieces = [piece for _ in shards[tenant] for piece in next(results)]
                rows = pa.concat_tables([CONTRASTIVE_ENTROPY.empty(), *pieces]).combine_chunks()
                output.write(CONTRASTIVE_ENTROPY.name, rows)
                output.write(ENTROPY_MEANS.name, means(rows, seed))
        n_positives += int((source.labels(tenant)["relevance"].to_numpy() > 0).sum())
        n_measured += output.read_unit(unit, CONTRASTIVE_ENTROPY.name).num_rows
    dropped = {UNMEASURED_REASON: n_positives - n_measured} if n_positives > n_measured else {}
    output.count(
        FunnelStep(ENTROPY_STAGE.name, "labelled positives", n_positives, "pairs measured", n_measured, dropped)
    )


def _shards(
    source: TrainingSource, system: EntropySystem, tenant: str, spread: Spread, seed: int
) -> list[EntropyShard]:
    """Shards of whole blocks of a tenant's queries.

    Encodes texts and, for a base without adapter, queries first, so that all shards read the same cached vectors.
    """
    base = system.base
    texts = Encoding(source, tenant, base.encoder, base.cache, ENTROPY_STAGE.name)
    prefetch_vectors(texts, _searched_texts(source, tenant)["content_hash"], spread)
    query_texts = _queries(source, tenant)["text"]
    blocks = range(0, len(query_texts), QUERIES_PER_BLOCK)
    if system.encode is None:
        cache = EmbeddingCache(base.cache.root, base.cache.vector_dtype)
        hashed_blocks = (hash_queries(query_texts[first : first + QUERIES_PER_BLOCK].to_pylist()) for first in blocks)
        ensure_cached(base.model, cache, hashed_blocks, queries=True)
    shards = split_evenly(len(blocks), spread.places)
    return [
        EntropyShard(
            source, system, tenant, low * QUERIES_PER_BLOCK, min(high * QUERIES_PER_BLOCK, len(query_texts)), seed
        )
        for low, high in shards
    ]


def measure_shard(shard: EntropyShard) -> Pieces:
    """Yield the rows of `contrastive_entropy` of a shard, a table per block of `QUERIES_PER_BLOCK` queries."""
    frozen = shard.system.base.index_of_texts(_searched_texts(shard.source, shard.tenant))
    queries = _queries(shard.source, shard.tenant).slice(shard.first, shard.last - shard.first).combine_chunks()
    query_set = _query_set(queries, shard.source.labels(shard.tenant), frozen)
    query_index, text_row = query_set.label_rows(frozen, query_set.labels)
    labels = query_set.labels.combine_chunks().append_column("position", pa.array(frozen.position_of[text_row]))
    order = np.argsort(query_index, kind="stable")
    labels = labels.take(pa.array(order))
    query_index = query_index[order]
    for first in range(0, queries.num_rows, QUERIES_PER_BLOCK):
        low, high = np.searchsorted(query_index, (first, first + QUERIES_PER_BLOCK))
        block_labels = (query_index[low:high] - first, labels.slice(low, high - low))
        yield _rows(shard, frozen, queries.slice(first, QUERIES_PER_BLOCK), block_labels)


def _searched_texts(source: TrainingSource, tenant: str) -> pa.Table:
    return pa.concat_tables([searched_texts(rows, 0) for rows in source.texts(tenant)])


def _queries(source: TrainingSource, tenant: str) -> pa.Table:
    return source.queries(tenant).sort_by("query_id")


def _rows(shard: EntropyShard, frozen: FrozenIndex, queries: pa.Table, labelled: tuple[Ints, pa.Table]) -> pa.Table:
    """Rows of `contrastive_entropy` of one block.

    Args:
        shard: the shard of the block.
        frozen: unit vectors of the texts.
        queries: the queries of the block.
        labelled: for each label, the index of its query in the block; and the labels with the column `position`.
    """
    system, n_positions = shard.system, len(frozen)
    query_index, labels = labelled
    position = labels["position"].to_numpy()
    is_positive = labels["relevance"].to_numpy() > 0
    pairs = (query_index[is_positive], position[is_positive])
    all_labels = Labels.from_pairs(query_index, position, n_positions)
    sampled = sample_negatives(queries["query_id"].to_pylist(), pairs, all_labels, n_positions, shard.seed)
    # The same order as in `sampled`: by query, then by position.
    measured_labels = labels.filter(pa.array(is_positive)).take(pa.array(np.lexsort((pairs[1], pairs[0]))))
    pair_queries = queries.take(pa.array(sampled.query))
    n_pairs = len(sampled.query)
    vectors = system.vectors(queries["text"].to_pylist())
    columns = {
        "tenant": pa.repeat(shard.tenant, n_pairs),
        "query_id": pair_queries["query_id"],
        "text_id": measured_labels["text_id"],
        "split": pair_queries["split"],
        "group": pair_queries["group"],
        "encoder": pa.repeat(system.name, n_pairs),
        "temperature": pa.repeat(system.temperature, n_pairs),
        "negatives": pa.array(sampled.counts, pa.int32()),
        "entropy": pa.array(sampled.entropy(frozen, vectors, system.temperature)),
    }
    rows = CONTRASTIVE_ENTROPY.rows(columns)
    return rows.filter(pc.greater(rows["negatives"], 0))  # without a negative there is no entropy: unknown, not 0


def _query_set(queries: pa.Table, labels: pa.Table, frozen: FrozenIndex) -> QuerySet:
    """The queries with their labels in the corpus; no vectors are computed yet."""
    ids = queries["query_id"].combine_chunks()
    in_corpus = pc.and_(
        pc.is_in(labels["query_id"], ids), pc.is_in(labels["text_id"], frozen.texts["text_id"].combine_chunks())
    )
    return QuerySet(ids, np.empty((0, 0), np.float32), np.empty(0, np.int32), labels.filter(in_corpus))


def means(rows: pa.Table, seed: int) -> pa.Table:
    """Mean entropy by split and its 95 % interval over query clusters: rows of `contrastive_entropy_means`.

    Args:
        rows: rows of `contrastive_entropy` of one tenant.
        seed: seed of the bootstrap.
    """
    rows_out = []
    for split in sorted(pc.unique(rows["split"]).to_pylist()):
        split_rows = rows.filter(pc.equal(rows["split"], split)).combine_chunks()
        entropy_values = split_rows["entropy"].to_numpy()
        negatives = split_rows["negatives"].to_numpy()
        cluster = split_rows["group"].combine_chunks().dictionary_encode().indices.to_numpy()
        cluster_sums = np.column_stack([np.bincount(cluster, entropy_values), np.bincount(cluster).astype(np.float64)])
        low, high = interval(cluster_sums, lambda sums: sums[..., 0] / sums[..., 1], RESAMPLES, seed)
        has_interval = len(cluster_sums) > 1  # a single cluster cannot be resampled
        rows_out.append(
            {name: split_rows[name][0].as_py() for name in ("tenant", "split", "encoder", "temperature")}
            | {"mean": float(entropy_values.mean()), "low": float(low) if has_interval else None}
            | {"high": float(high) if has_interval else None, "chance": float(np.log1p(negatives).mean())}
            | {
                "pairs": len(entropy_values),
                "queries": len(pc.unique(split_rows["query_id"])),
                "negatives": int(negatives.min()),
            }
        )
    return pa.Table.from_pylist(rows_out, schema=ENTROPY_MEANS.schema)


def few_negatives(tables: Tables) -> list[str]:
    """A warning for each tenant with pairs that have fewer than W negatives."""
    rows = tables.sql("SELECT tenant, min(negatives) AS fewest FROM contrastive_entropy_means GROUP BY 1 ORDER BY 1")
    return [
        f"Tenant {row['tenant']}: some positives are compared with only {row['fewest']} of {N_NEGATIVES} random texts, "
        "because the tenant has no more without a label. Their entropy is low for that reason alone: compare it with "
        "`chance`, not with other tenants."
        for row in rows.to_pylist()
        if row["fewest"] < N_NEGATIVES
    ]


def summarize(tables: Tables) -> pa.Table:
    """The means, formatted for people."""
    return tables.sql("FROM contrastive_entropy_means ORDER BY tenant, split")
