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
from darklode.pipeline.laws.entropy import drawn
from darklode.pipeline.train.pairs import searched
from darklode.pipeline.train.sources import OF_A_BUILD, OF_A_LOG, Source
from darklode.pipeline.train.task import Labels, Questions
from darklode.pipeline.train.vectors import Base, Floats, Frozen
from darklode.schemas.law_tables import CONTRASTIVE_ENTROPY, ENTROPY_MEANS

ENTROPY_STAGE = Stage("contrastive_entropy", 1, OF_A_BUILD, (CONTRASTIVE_ENTROPY.name, ENTROPY_MEANS.name))
OF_A_MINED_RUN = ENTROPY_STAGE.reading(*OF_A_LOG)
"""What the stage is of a run that is mined from a log."""

RESAMPLES = 2000


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


def entropies(source: Source, output: Output, system: System, *, tenants: list[str], seed: int) -> None:
    """Measure each pair that is labelled as relevant, tenant by tenant, a unit each.

    Args:
        source: the run.
        output: takes `contrastive_entropy` and `contrastive_entropy_means`.
        system: the encoder.
        tenants: whose pairs.
        seed: of the texts drawn, and of the intervals.
    """
    found, pairs = 0, 0
    for number, tenant in enumerate(tenants):
        output.progress(number, len(tenants), tenant)
        labels = source.labels(tenant, (), 0.0)
        with output.unit(tenant, key_of(source.content(), tenant)) as unit:
            if not unit.done:
                rows = _rows(source, system, labels, tenant, seed)
                output.write(CONTRASTIVE_ENTROPY.name, rows)
                output.write(ENTROPY_MEANS.name, means(rows, seed))
        pairs += int((labels["relevance"].to_numpy() > 0).sum())
        found += output.written(unit, CONTRASTIVE_ENTROPY.name).num_rows
    lost = {"the text is not searched, or the query is on no side": pairs - found} if pairs > found else {}
    output.count(FunnelStep(ENTROPY_STAGE.name, "labelled positives", pairs, "pairs measured", found, lost))


def _rows(source: Source, system: System, labels: pa.Table, tenant: str, seed: int) -> pa.Table:
    texts = pa.concat_tables([searched(rows, 0) for rows in source.texts(tenant)])
    frozen = system.base.over(texts)
    queries = source.queries(tenant).sort_by("query_id").combine_chunks()
    asked = _asked(queries, labels, frozen)
    rows = asked.labels.combine_chunks()
    query, place = asked.places(frozen, rows)
    right = rows["relevance"].to_numpy() > 0
    position, n = frozen.position_of[place], len(frozen)
    ids = asked.ids.to_pylist()
    chosen = drawn(ids, (query[right], position[right]), Labels.of(query, position, n), n, seed)
    order = np.lexsort((position[right], query[right]))
    taken = rows.filter(pa.array(right)).take(pa.array(order))
    about = queries.take(pc.index_in(taken["query_id"].combine_chunks(), queries["query_id"].combine_chunks()))
    many = len(order)
    columns = {
        "tenant": pa.repeat(tenant, many),
        "query_id": taken["query_id"],
        "text_id": taken["text_id"],
        "split": about["split"],
        "group": about["group"],
        "encoder": pa.repeat(system.name, many),
        "temperature": pa.repeat(system.temperature, many),
        "negatives": pa.array(chosen.counts, pa.int32()),
        "entropy": pa.array(chosen.entropy(frozen, system.vectors(queries["text"].to_pylist()), system.temperature)),
    }
    return CONTRASTIVE_ENTROPY.rows(columns)


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
            | {"pairs": len(values), "queries": len(pc.unique(mine["query_id"]))}
        )
    return pa.Table.from_pylist(found, schema=ENTROPY_MEANS.schema)


def told(tables: Tables) -> pa.Table:
    """The means, as a person reads them."""
    return tables.sql("FROM contrastive_entropy_means ORDER BY tenant, split")
