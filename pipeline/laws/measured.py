"""The stage that measures an encoder's contrastive entropy over all labelled pairs of a run."""

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
from darklode.pipeline.base.spread import Pieces, Spread, dealt, here
from darklode.pipeline.laws.entropy import NEGATIVES, drawn
from darklode.pipeline.retrieve.encoders.caching import ensure_cached, hashed_queries
from darklode.pipeline.train.encoding import Encoding, encode_ahead
from darklode.pipeline.train.pairs import searched
from darklode.pipeline.train.sources import OF_A_BUILD, OF_A_LOG, Source
from darklode.pipeline.train.task import Labels, Questions
from darklode.pipeline.train.vectors import Base, Floats, Frozen, Ints
from darklode.schemas.law_tables import CONTRASTIVE_ENTROPY, ENTROPY_MEANS

ENTROPY_STAGE = Stage("contrastive_entropy", 3, OF_A_BUILD, (CONTRASTIVE_ENTROPY.name, ENTROPY_MEANS.name))
OF_A_MINED_RUN = ENTROPY_STAGE.reading(*OF_A_LOG)
"""What the stage is of a run that is mined from a log."""

UNMEASURED = "text not searched, query in no split, or no unlabelled text to compare with"

RESAMPLES = 2000

QUERIES = 1 << 10
"""Of a block, whose vectors are made together wherever that is: an encoder's last bits may hang on its batches."""


@dataclass(frozen=True)
class System:
    """What is measured.

    Attributes:
        name: as it was given.
        base: has the texts' vectors.
        encode: gives queries theirs; None: the base does.
        temperature: scores are divided by it.
        weights: name the adapter, if there is one.
    """

    name: str
    base: Base
    encode: Callable[[Sequence[str]], Floats] | None
    temperature: float
    weights: Any = None

    @property
    def identity(self) -> dict[str, Any]:
        """All that can change an entropy besides texts and labels."""
        own = {"name": self.name, "temperature": self.temperature, "adapter": self.weights}
        return {"system": own | {"base": self.base.identity}}

    def vectors(self, texts: list[str]) -> Floats:
        """Unit vectors of queries."""
        return self.encode(texts) if self.encode else self.base.queries(texts)


@dataclass(frozen=True)
class Asked:
    """A shard: a tenant's queries from `first` up to, not including, `last`, by their ids.

    Attributes:
        source: the run.
        system: what is measured.
        tenant: whose pairs.
        first, last: places of the queries.
        seed: of the texts drawn.
    """

    source: Source
    system: System
    tenant: str
    first: int
    last: int
    seed: int

    @property
    def name(self) -> str:
        """See `Shard`."""
        return f"entropy of {self.tenant} queries {self.first} to {self.last - 1}"

    @property
    def place(self) -> str:
        """See `Shard`."""
        given = (ENTROPY_STAGE.version, self.source.content(), self.tenant, self.first, self.last, self.seed)
        return f"progress/{ENTROPY_STAGE.name}/{key_of(*given, self.system.identity)}"


def entropies(
    source: Source, output: Output, system: System, spread: Spread = here, *, tenants: list[str], seed: int
) -> None:
    """Measure each pair that is labelled as relevant, tenant by tenant, a unit each.

    Args:
        source: the run.
        output: takes `contrastive_entropy` and `contrastive_entropy_means`.
        system: the encoder.
        spread: where vectors and pairs are worked on.
        tenants: whose pairs.
        seed: of the texts drawn, and of the intervals.
    """
    bases = {tenant: key_of(source.content(), tenant) for tenant in tenants}
    missing = [tenant for tenant, basis in bases.items() if not output.stands(tenant, basis)]
    shards = {tenant: _shards(source, system, tenant, spread, seed) for tenant in missing}
    results = spread(measured, [shard for mine in shards.values() for shard in mine])
    found, pairs = 0, 0
    for number, (tenant, basis) in enumerate(bases.items()):
        output.progress(number, len(tenants), tenant)
        with output.unit(tenant, basis) as unit:
            if not unit.done:
                pieces = [piece for _ in shards[tenant] for piece in next(results)]
                rows = pa.concat_tables([CONTRASTIVE_ENTROPY.empty(), *pieces]).combine_chunks()
                output.write(CONTRASTIVE_ENTROPY.name, rows)
                output.write(ENTROPY_MEANS.name, means(rows, seed))
        pairs += int((source.labels(tenant, (), 0.0)["relevance"].to_numpy() > 0).sum())
        found += output.written(unit, CONTRASTIVE_ENTROPY.name).num_rows
    lost = {UNMEASURED: pairs - found} if pairs > found else {}
    output.count(FunnelStep(ENTROPY_STAGE.name, "labelled positives", pairs, "pairs measured", found, lost))


def _shards(source: Source, system: System, tenant: str, spread: Spread, seed: int) -> list[Asked]:
    """Whole blocks of a tenant's queries, once all vectors are there that the cache keeps."""
    base = system.base
    texts = Encoding(source, tenant, base.encoder, base.cache, ENTROPY_STAGE.name)
    encode_ahead(texts, _searched(source, tenant)["content_hash"], spread)
    asked = _queries(source, tenant)["text"]
    blocks = range(0, len(asked), QUERIES)
    if system.encode is None:
        cache = EmbeddingCache(base.cache.root, base.cache.dtype)
        lists = (hashed_queries(asked[n : n + QUERIES].to_pylist()) for n in blocks)
        ensure_cached(base.model, cache, lists, queries=True)
    shards = dealt(len(blocks), spread.places)
    return [Asked(source, system, tenant, low * QUERIES, min(high * QUERIES, len(asked)), seed) for low, high in shards]


def measured(shard: Asked) -> Pieces:
    """Rows of `contrastive_entropy` of each block of queries, since a block's vectors are made together."""
    frozen = shard.system.base.over(_searched(shard.source, shard.tenant))
    queries = _queries(shard.source, shard.tenant).slice(shard.first, shard.last - shard.first).combine_chunks()
    asked = _asked(queries, shard.source.labels(shard.tenant, (), 0.0), frozen)
    query, row = asked.places(frozen, asked.labels)
    labels = asked.labels.combine_chunks().append_column("position", pa.array(frozen.position_of[row]))
    order = np.argsort(query, kind="stable")
    labels, query = labels.take(pa.array(order)), query[order]
    for first in range(0, queries.num_rows, QUERIES):
        low, high = np.searchsorted(query, (first, first + QUERIES))
        mine = (query[low:high] - first, labels.slice(low, high - low))
        yield _rows(shard, frozen, queries.slice(first, QUERIES), mine)


def _searched(source: Source, tenant: str) -> pa.Table:
    return pa.concat_tables([searched(rows, 0) for rows in source.texts(tenant)])


def _queries(source: Source, tenant: str) -> pa.Table:
    return source.queries(tenant).sort_by("query_id")


def _rows(shard: Asked, frozen: Frozen, queries: pa.Table, labelled: tuple[Ints, pa.Table]) -> pa.Table:
    """Of a block of queries, and of its labels, each with its query's place."""
    (query, labels), system, n = labelled, shard.system, len(frozen)
    position, right = labels["position"].to_numpy(), labels["relevance"].to_numpy() > 0
    pairs = (query[right], position[right])
    chosen = drawn(queries["query_id"].to_pylist(), pairs, Labels.of(query, position, n), n, shard.seed)
    taken = labels.filter(pa.array(right)).take(pa.array(np.lexsort((pairs[1], pairs[0]))))
    about, many = queries.take(pa.array(chosen.query)), len(chosen.query)
    vectors = system.vectors(queries["text"].to_pylist())
    columns = {
        "tenant": pa.repeat(shard.tenant, many),
        "query_id": about["query_id"],
        "text_id": taken["text_id"],
        "split": about["split"],
        "group": about["group"],
        "encoder": pa.repeat(system.name, many),
        "temperature": pa.repeat(system.temperature, many),
        "negatives": pa.array(chosen.counts, pa.int32()),
        "entropy": pa.array(chosen.entropy(frozen, vectors, system.temperature)),
    }
    rows = CONTRASTIVE_ENTROPY.rows(columns)
    return rows.filter(pc.greater(rows["negatives"], 0))  # without a negative there is no entropy: unknown, not 0


def _asked(queries: pa.Table, labels: pa.Table, frozen: Frozen) -> Questions:
    """The queries with those of their labels whose text is searched; no vector is needed yet."""
    ids = queries["query_id"].combine_chunks()
    known = pc.and_(
        pc.is_in(labels["query_id"], ids), pc.is_in(labels["text_id"], frozen.texts["text_id"].combine_chunks())
    )
    return Questions(ids, np.empty((0, 0), np.float32), np.empty(0, np.int32), labels.filter(known))


def means(rows: pa.Table, seed: int) -> pa.Table:
    """Mean entropy by split, with its 95 % interval over clusters of queries."""
    found = []
    for split in sorted(pc.unique(rows["split"]).to_pylist()):
        mine = rows.filter(pc.equal(rows["split"], split)).combine_chunks()
        values, negatives = mine["entropy"].to_numpy(), mine["negatives"].to_numpy()
        group = mine["group"].combine_chunks().dictionary_encode().indices.to_numpy()
        sums = np.column_stack([np.bincount(group, values), np.bincount(group).astype(np.float64)])
        low, high = interval(sums, lambda counts: counts[..., 0] / counts[..., 1], RESAMPLES, seed)
        several = len(sums) > 1
        found.append(
            {name: mine[name][0].as_py() for name in ("tenant", "split", "encoder", "temperature")}
            | {"mean": float(values.mean()), "low": float(low) if several else None}
            | {"high": float(high) if several else None, "chance": float(np.log1p(negatives).mean())}
            | {"pairs": len(values), "queries": len(pc.unique(mine["query_id"])), "negatives": int(negatives.min())}
        )
    return pa.Table.from_pylist(found, schema=ENTROPY_MEANS.schema)


def few_negatives(tables: Tables) -> list[str]:
    """A warning for each tenant whose pairs are compared with fewer than W texts; one without any pair has none."""
    rows = tables.sql("SELECT tenant, min(negatives) AS fewest FROM contrastive_entropy_means GROUP BY 1 ORDER BY 1")
    return [
        f"Tenant {row['tenant']}: some positives are compared with only {row['fewest']} of {NEGATIVES} random texts, "
        "because the tenant has no more without a label. Their entropy is low for that reason alone: compare it with "
        "`chance`, not with other tenants."
        for row in rows.to_pylist()
        if row["fewest"] < NEGATIVES
    ]


def told(tables: Tables) -> pa.Table:
    """The means, as a person reads them."""
    return tables.sql("FROM contrastive_entropy_means ORDER BY tenant, split")
