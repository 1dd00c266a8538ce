"""Release gate: compare an adapter with the live system on test queries that neither was trained on."""

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
    MAX_LOSS,
    MIN_CLUSTERS,
    SIGNIFICANCE,
    ResamplingSettings,
    compare_paired,
    is_above_zero,
)
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.serve.run_search import TenantIndex
from darklode.pipeline.train.release.adapter import Adapter

MARGIN = 0.01
"""Non-inferiority margin of nDCG@10."""

MEASURE, DEPTH = "nDCG@10", 10

NEAR_TRAINING_QUERIES_SQL = """
    SELECT DISTINCT l.n FROM {keys} l JOIN {keys} k USING (key) WHERE k.n >= $first AND l.n < $first ORDER BY l.n
"""


@dataclass(frozen=True)
class LiveAdapters:
    """The new and the live system of a tenant's index.

    Attributes:
        index: the tenant's texts.
        new: system to be released.
        old: live system.
        live_name: name of the live system, for messages.
        learned: training queries of both.
    """

    index: TenantIndex
    new: Factory
    old: Factory
    live_name: str
    learned: Sequence[str]


def learned_queries(adapters: Iterable[Adapter]) -> list[str]:
    """Training queries recorded by adapters."""
    return sorted({text for adapter in adapters for text in adapter.facts.get("learned", [])})


def require_no_loss(rivals: LiveAdapters) -> None:
    """Check non-inferiority: nDCG@10 falls by less than `MARGIN`, by a 95 % interval and a test on enough clusters.

    Raises:
        NoLift: it may fall by more, or there are too few labelled test queries.
    """
    index, tenant = rivals.index, rivals.index.tenant
    queries, labels = _test_queries(index, rivals.learned)
    if not queries.num_rows:
        raise NoLift(f"tenant {tenant} has no labelled test queries outside the training data: nothing can be shown")
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
            f"too few test queries to decide whether tenant {tenant} becomes worse: {len(ids)} labelled ones outside "
            f"the training data form {above['clusters']} clusters, at least {MIN_CLUSTERS} are needed"
        )
    if not is_above_zero(above):
        raise NoLift(f"tenant {tenant} {fall_summary(above)} against {rivals.live_name} on {len(ids)} test queries")


def fall_summary(above: Mapping[str, Any]) -> str:
    """The reason against a release: a loss that is shown, or one that is possible.

    Args:
        above: `Difference.row` of the difference plus `MARGIN`, with at least `MIN_CLUSTERS` clusters.
    """
    low, high = max(MAX_LOSS, above["low"] - MARGIN), above["high"] - MARGIN
    between = f"{MEASURE} {above['difference'] - MARGIN:+.3f} ({low:+.3f} to {high:+.3f}, p {above['p']:.3f})"
    if is_above_zero({**above, "low": -above["high"]}):
        return f"would fall by more than {MARGIN}: {between}"
    return f"may fall by more than {MARGIN}, which interval and p (at most {SIGNIFICANCE}) must exclude: {between}"


def _test_queries(index: TenantIndex, learned: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Labelled test queries without near duplicates in the training data (query_id, text, group), and their labels."""
    queries, labels = index.source.queries(index.tenant), index.source.labels(index.tenant)
    labelled_ids = labels.filter(pc.greater(labels["relevance"], 0))["query_id"].combine_chunks()
    test_rows = queries.filter(pc.and_(pc.equal(queries["split"], "test"), pc.is_in(queries["query_id"], labelled_ids)))
    texts = [*test_rows["text"].to_pylist(), *learned]
    rows = {"n": pa.array(range(len(texts)), pa.int64()), "tenant": pa.repeat(index.tenant, len(texts)), "text": texts}
    with index.source.tables.connect() as connection:
        connection.register("texts", pa.table(rows))
        near_queries = NEAR_TRAINING_QUERIES_SQL.format(keys=near_keys(connection, Relation("texts")))
        near_rows = connection.sql(near_queries, params={"first": test_rows.num_rows}).to_arrow_table()["n"].to_numpy()
    unseen_rows = np.setdiff1d(np.arange(test_rows.num_rows), near_rows)
    test_rows = test_rows.take(pa.array(unseen_rows))
    return test_rows, labels.filter(pc.is_in(labels["query_id"], test_rows["query_id"].combine_chunks()))
