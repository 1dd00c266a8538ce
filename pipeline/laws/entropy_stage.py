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
from darklode.pipeline.laws.entropy import NEGATIVES, sample_negatives
from darklode.pipeline.retrieve.encoders.caching import ensure_cached, hash_queries
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.data.encoding import Encoding, prefetch_vectors
from darklode.pipeline.train.data.labels import Labels
from darklode.pipeline.train.data.pairs import searched_texts
from darklode.pipeline.train.data.sources import OF_A_BUILD, OF_A_LOG, TrainingSource
from darklode.pipeline.train.data.vectors import FrozenIndex
from darklode.schemas.law_tables import CONTRASTIVE_ENTROPY, ENTROPY_MEANS

ENTROPY_STAGE = Stage("contrastive_entropy", 3, OF_A_BUILD, (CONTRASTIVE_ENTROPY.name, ENTROPY_MEANS.name))
OF_A_MINED_RUN = ENTROPY_STAGE.reading(*OF_A_LOG)
"""The same stage for a run mined from a log."""

UNMEASURED = "text not searched, query in no split, or no unlabelled text to compare with"

RESAMPLES = 2000

QUERIES = 1 << 10
"""Queries per block. The vectors of a block are always computed together, because the last bits of a vector can depend
on its batch: the result must not depend on where a block is computed.
"""


@dataclass(frozen=True)
class EntropySystem:
    """The encoder to measure.

    Attributes:
        name: as given on the command line.
        base: encodes the texts.
        encode: encodes the queries; None: the base does.
        temperature: of the softmax.
        weights: identity of the adapter, if any.
    """

    name: str
    base: BaseEncoder
    encode: Callable[[Sequence[str]], Floats] | None
    temperature: float
    weights: Any = None

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change an entropy besides texts and labels."""
        own = {"name": self.name, "temperature": self.temperature, "adapter": self.weights}
        return {"system": own | {"base": self.base.identity}}

    def vectors(self, texts: list[str]) -> Floats:
        """Unit vectors of queries."""
        return self.encode(texts) if self.encode else self.base.queries(texts)


@dataclass(frozen=True)
class EntropyShard:
    """A tenant's queries from `first` up to but excluding `last`, ordered by id.

    Attributes:
        source: the run.
        system: the encoder.
        tenant: whose pairs.
        first, last: range of the queries.
        seed: of the negatives.
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
        source: the run.
        output: `contrastive_entropy` and `contrastive_entropy_means`.
        system: the encoder.
        spread: where blocks are computed.
        tenants: the tenants to measure.
        seed: of the negatives and the intervals.
    """
    bases = {tenant: key_of(source.content(), tenant) for tenant in tenants}
    missing = [tenant for tenant, basis in bases.items() if not output.is_done(tenant, basis)]
    shards = {tenant: _shards(source, system, tenant, spread, seed) for tenant in missing}
    results = spread(measure_shard, [shard for own_shards in shards.values() for shard in own_shards])
    n_measured, pairs = 0, 0
    for number, (tenant, basis) in enumerate(bases.items()):
        output.progress(number, len(tenants), tenant)
        with output.unit(tenant, basis) as unit:
            if not unit.done:
                pieces = [piece for _ in shards[tenant] for piece in next(results)]
                rows = pa.concat_tables([CONTRASTIVE_ENTROPY.empty(), *pieces]).combine_chunks()
                output.write(CONTRASTIVE_ENTROPY.name, rows)
                output.write(ENTROPY_MEANS.name, means(rows, seed))
        pairs += int((source.labels(tenant, (), 0.0)["relevance"].to_numpy() > 0).sum())
        n_measured += output.read_unit(unit, CONTRASTIVE_ENTROPY.name).num_rows
    lost = {UNMEASURED: pairs - n_measured} if pairs > n_measured else {}
    output.count(FunnelStep(ENTROPY_STAGE.name, "labelled positives", pairs, "pairs measured", n_measured, lost))


def _shards(
    source: TrainingSource, system: EntropySystem, tenant: str, spread: Spread, seed: int
) -> list[EntropyShard]:
    """Shards of whole blocks of a tenant's queries; all cached vectors must exist before."""
    base = system.base
    texts = Encoding(source, tenant, base.encoder, base.cache, ENTROPY_STAGE.name)
    prefetch_vectors(texts, _searched_texts(source, tenant)["content_hash"], spread)
    query_texts = _queries(source, tenant)["text"]
    blocks = range(0, len(query_texts), QUERIES)
    if system.encode is None:
        cache = EmbeddingCache(base.cache.root, base.cache.vector_dtype)
        lists = (hash_queries(query_texts[n : n + QUERIES].to_pylist()) for n in blocks)
        ensure_cached(base.model, cache, lists, queries=True)
    shards = split_evenly(len(blocks), spread.places)
    return [
        EntropyShard(source, system, tenant, low * QUERIES, min(high * QUERIES, len(query_texts)), seed)
        for low, high in shards
    ]


def measure_shard(shard: EntropyShard) -> Pieces:
    """Rows of `contrastive_entropy`, block by block; see `QUERIES`."""
    frozen = shard.system.base.index_of_texts(_searched_texts(shard.source, shard.tenant))
    queries = _queries(shard.source, shard.tenant).slice(shard.first, shard.last - shard.first).combine_chunks()
    query_set = _query_set(queries, shard.source.labels(shard.tenant, (), 0.0), frozen)
    query, row = query_set.label_rows(frozen, query_set.labels)
    labels = query_set.labels.combine_chunks().append_column("position", pa.array(frozen.position_of[row]))
    order = np.argsort(query, kind="stable")
    labels, query = labels.take(pa.array(order)), query[order]
    for first in range(0, queries.num_rows, QUERIES):
        low, high = np.searchsorted(query, (first, first + QUERIES))
        shard_pairs = (query[low:high] - first, labels.slice(low, high - low))
        yield _rows(shard, frozen, queries.slice(first, QUERIES), shard_pairs)


def _searched_texts(source: TrainingSource, tenant: str) -> pa.Table:
    return pa.concat_tables([searched_texts(rows, 0) for rows in source.texts(tenant)])


def _queries(source: TrainingSource, tenant: str) -> pa.Table:
    return source.queries(tenant).sort_by("query_id")


def _rows(shard: EntropyShard, frozen: FrozenIndex, queries: pa.Table, labelled: tuple[Ints, pa.Table]) -> pa.Table:
    """Rows of one block, from its labels with their query's index."""
    (query, labels), system, n = labelled, shard.system, len(frozen)
    position, right = labels["position"].to_numpy(), labels["relevance"].to_numpy() > 0
    pairs = (query[right], position[right])
    sampled = sample_negatives(
        queries["query_id"].to_pylist(), pairs, Labels.from_pairs(query, position, n), n, shard.seed
    )
    measured_labels = labels.filter(pa.array(right)).take(pa.array(np.lexsort((pairs[1], pairs[0]))))
    about, n_pairs = queries.take(pa.array(sampled.query)), len(sampled.query)
    vectors = system.vectors(queries["text"].to_pylist())
    columns = {
        "tenant": pa.repeat(shard.tenant, n_pairs),
        "query_id": about["query_id"],
        "text_id": measured_labels["text_id"],
        "split": about["split"],
        "group": about["group"],
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
    """Mean entropy by split and its 95 % interval over query clusters."""
    rows_out = []
    for split in sorted(pc.unique(rows["split"]).to_pylist()):
        split_rows = rows.filter(pc.equal(rows["split"], split)).combine_chunks()
        values, negatives = split_rows["entropy"].to_numpy(), split_rows["negatives"].to_numpy()
        group = split_rows["group"].combine_chunks().dictionary_encode().indices.to_numpy()
        sums = np.column_stack([np.bincount(group, values), np.bincount(group).astype(np.float64)])
        low, high = interval(sums, lambda counts: counts[..., 0] / counts[..., 1], RESAMPLES, seed)
        has_interval = len(sums) > 1
        rows_out.append(
            {name: split_rows[name][0].as_py() for name in ("tenant", "split", "encoder", "temperature")}
            | {"mean": float(values.mean()), "low": float(low) if has_interval else None}
            | {"high": float(high) if has_interval else None, "chance": float(np.log1p(negatives).mean())}
            | {
                "pairs": len(values),
                "queries": len(pc.unique(split_rows["query_id"])),
                "negatives": int(negatives.min()),
            }
        )
    return pa.Table.from_pylist(rows_out, schema=ENTROPY_MEANS.schema)


def few_negatives(tables: Tables) -> list[str]:
    """A warning for each tenant with pairs that have fewer than W negatives."""
    rows = tables.sql("SELECT tenant, min(negatives) AS fewest FROM contrastive_entropy_means GROUP BY 1 ORDER BY 1")
    return [
        f"Tenant {row['tenant']}: some positives are compared with only {row['fewest']} of {NEGATIVES} random texts, "
        "because the tenant has no more without a label. Their entropy is low for that reason alone: compare it with "
        "`chance`, not with other tenants."
        for row in rows.to_pylist()
        if row["fewest"] < NEGATIVES
    ]


def summarize(tables: Tables) -> pa.Table:
    """The means, formatted for people."""
    return tables.sql("FROM contrastive_entropy_means ORDER BY tenant, split")
