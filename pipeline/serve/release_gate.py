"""Whether an adapter may take the place of what is live: compared on test queries that none of them learned from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.base.near_duplicates import near_keys
from darklode.pipeline.base.relations import Relation
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import (
    LARGEST_LOSS,
    LEVEL,
    MIN_CLUSTERS,
    ResamplingSettings,
    compare_paired,
    is_above_zero,
)
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.serve.run_search import TenantIndex
from darklode.pipeline.train.release.adapter import Adapter

MARGIN = 0.01
"""So much nDCG@10 may fall; that it does not fall by more must be shown."""

MEASURE, DEPTH = "nDCG@10", 10

NEAR = """
    SELECT DISTINCT l.n FROM {keys} l JOIN {keys} k USING (key) WHERE k.n >= $first AND l.n < $first ORDER BY l.n
"""


@dataclass(frozen=True)
class LiveAdapters:
    """Two systems for one tenant's index: what is to go live, and what is live there.

    Attributes:
        index: the tenant's texts.
        new: what is to go live.
        old: what is live.
        live_name: what that is, in words.
        learned: queries that one of them learned from.
    """

    index: TenantIndex
    new: Factory
    old: Factory
    live_name: str
    learned: Sequence[str]


def learned_queries(adapters: Iterable[Adapter]) -> list[str]:
    """The queries that adapters learned from, as they recorded them."""
    return sorted({text for adapter in adapters for text in adapter.facts.get("learned", [])})


def require_no_loss(rivals: LiveAdapters) -> None:
    """Make sure that nDCG@10 does not fall by more than `MARGIN`, by a 95 % interval and a test on enough clusters.

    Raises:
        NoLift: it may, or too few labelled test queries are left to decide by.
    """
    index, tenant = rivals.index, rivals.index.tenant
    queries, labels = _test_queries(index, rivals.learned)
    if not queries.num_rows:
        raise NoLift(f"no test query of the tenant {tenant} is labelled that none has learned from: nothing is shown")
    ids, systems = queries["query_id"].to_pylist(), {"new": rivals.new, "old": rivals.old}
    results = index.top(systems, queries["text"].to_pylist(), DEPTH)
    results = results.append_column(
        "query_id", queries["query_id"].combine_chunks().take(results["query"].combine_chunks())
    )
    lists: Mapping[str, pa.Table] = {name: results.filter(pc.equal(results["system"], name)) for name in systems}
    values = {name: compute_measures([rankings], labels, ids, [MEASURE]) for name, rankings in lists.items()}
    groups = queries["group"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    above = compare_paired(values["new"] + MARGIN, values["old"], groups, ResamplingSettings()).row(0)
    if above["clusters"] < MIN_CLUSTERS:
        raise NoLift(
            f"too few clusters to decide whether the tenant {tenant} would fall: the {len(ids)} labelled test queries "
            f"that none has learned from fall into {above['clusters']}, at least {MIN_CLUSTERS} are needed"
        )
    if not is_above_zero(above):
        raise NoLift(f"the tenant {tenant} {fall_summary(above)} against {rivals.live_name} on {len(ids)} test queries")


def fall_summary(above: Mapping[str, Any]) -> str:
    """What keeps an adapter back: a fall that is shown, or one that may be.

    Args:
        above: the difference plus `MARGIN`, as `Difference.row` gives it, of at least `MIN_CLUSTERS` clusters.
    """
    low, high = max(LARGEST_LOSS, above["low"] - MARGIN), above["high"] - MARGIN
    between = f"{MEASURE} {above['difference'] - MARGIN:+.3f} ({low:+.3f} to {high:+.3f}, p {above['p']:.3f})"
    if is_above_zero({**above, "low": -above["high"]}):
        return f"would fall by more than {MARGIN}: {between}"
    return f"may fall by more than {MARGIN}, which interval and p (at most {LEVEL}) must exclude: {between}"


def _test_queries(index: TenantIndex, learned: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Labelled test queries near to none that was learned from: query_id, text and group; and their labels."""
    queries, labels = index.source.queries(index.tenant), index.source.labels(index.tenant, (), 0.0)
    right = labels.filter(pc.greater(labels["relevance"], 0))["query_id"].combine_chunks()
    test_rows = queries.filter(pc.and_(pc.equal(queries["split"], "test"), pc.is_in(queries["query_id"], right)))
    texts = [*test_rows["text"].to_pylist(), *learned]
    rows = {"n": pa.array(range(len(texts)), pa.int64()), "tenant": pa.repeat(index.tenant, len(texts)), "text": texts}
    with index.source.tables.connect() as connection:
        connection.register("asked", pa.table(rows))
        near_queries = NEAR.format(keys=near_keys(connection, Relation("asked")))
        near_rows = connection.sql(near_queries, params={"first": test_rows.num_rows}).to_arrow_table()["n"].to_numpy()
    unseen_rows = np.setdiff1d(np.arange(test_rows.num_rows), near_rows)
    test_rows = test_rows.take(pa.array(unseen_rows))
    return test_rows, labels.filter(pc.is_in(labels["query_id"], test_rows["query_id"].combine_chunks()))
