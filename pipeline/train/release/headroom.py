"""Whether adaptation can help, before training; uses train and validation queries, never the test."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.evaluate.measures import compute_measures, upper_bounds
from darklode.pipeline.evaluate.paired import MIN_CLUSTERS, detectable_gain
from darklode.pipeline.train.release.evaluation import DEPTH, MEASURES
from darklode.schemas.adaptation_tables import HEADROOM

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet
    from darklode.pipeline.train.data.vectors import FrozenIndex

HEADROOM_STAGE = Stage("headroom", 4, ("adaptation_queries", "adaptation_labels", "adaptation_texts"), (HEADROOM.name,))


PAIRED_SD = 0.2
"""Standard deviation of the per-query nDCG@10 difference of an adapted encoder to its base (docs/guides/adapt.md)."""


def detectable(clusters: int) -> float | None:
    """Smallest lift in nDCG@10 that this many clusters detect with 80 % power at `PAIRED_SD`; None for too few
    clusters.
    """
    return detectable_gain(PAIRED_SD / math.sqrt(clusters), clusters) if clusters >= MIN_CLUSTERS else None


def measure_headroom(tables: Tables, output: Output, base: BaseEncoder) -> None:
    """Write the base's score, the score of its top 100 in ideal order, the judge's order, and a perfect ranking.

    Args:
        tables: the tables of `adaptation_pairs`.
        output: receives `headroom`; its facts count the test queries and the detectable lift.
        base: the encoder to adapt.
    """
    from darklode.pipeline.train.data.dataset import QuerySet
    from darklode.pipeline.train.fit.model_selection import selection_queries

    frozen = base.open(tables)
    queries = selection_queries(*(QuerySet.from_tables(tables, frozen, split) for split in ("train", "validation")))
    for system, values in _systems(queries, frozen).items():
        n = len(MEASURES)
        columns = {"system": [system] * n, "measure": list(MEASURES), "value": values, "queries": [len(queries)] * n}
        output.write(HEADROOM.name, HEADROOM.rows(columns))
    _count(tables, output)


def _systems(queries: QuerySet, frozen: FrozenIndex) -> dict[str, list[float]]:
    ids, labels = queries.ids.to_pylist(), queries.labels

    def mean_measures(lists: pa.Table) -> list[float]:
        return [float(value) for value in compute_measures([lists], labels, ids, MEASURES).mean(axis=0)]

    rankings = queries.ranking(frozen, queries.vectors, DEPTH)
    judged = labels.filter(pc.is_valid(labels["probability"]))
    systems = {
        "base": mean_measures(rankings),
        "base, its first 100 in the best order": mean_measures(_best(rankings, labels)),
    }
    if judged.num_rows:
        systems["judge: labelled texts by its probability"] = mean_measures(by_value(judged, "probability"))
    return systems | {"perfect": [float(value) for value in upper_bounds(labels, ids, MEASURES).mean(axis=0)]}


def _best(rankings: pa.Table, labels: pa.Table) -> pa.Table:
    """The same rankings with relevant texts first."""
    right = labels.select(["query_id", "text_id", "relevance"])
    joined = rankings.drop_columns(["rank"]).join(right, ["query_id", "text_id"])
    relevance = pc.fill_null(joined["relevance"], 0)
    return by_value(joined.set_column(joined.schema.get_field_index("relevance"), "relevance", relevance), "relevance")


def by_value(rows: pa.Table, column: str) -> pa.Table:
    """Rankings (query_id, rank, text_id) by descending value of a column; ties by text."""
    ordered = rows.sort_by([("query_id", "ascending"), (column, "descending"), ("text_id", "ascending")])
    queries = ordered["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    starts = np.flatnonzero(np.diff(queries, prepend=-1))
    rank = np.arange(len(queries)) - np.repeat(starts, np.diff([*starts, len(queries)])) + 1
    return pa.table({"query_id": ordered["query_id"], "rank": rank, "text_id": ordered["text_id"]})


def _count(tables: Tables, output: Output) -> None:
    rows = tables.sql(
        'SELECT split, count(*) AS queries, count(DISTINCT "group") AS clusters, '
        "count(*) FILTER (NOT shares_positive) AS own, "
        'count(DISTINCT "group") FILTER (NOT shares_positive) AS own_clusters '
        "FROM adaptation_queries GROUP BY split ORDER BY split"
    ).to_pylist()
    counts = {row.pop("split"): row for row in rows}
    test = counts.get("test", {"queries": 0, "own": 0, "own_clusters": 0})
    output.facts |= {"sides": counts, "deciding": test["own"], "detectable": detectable(test["own_clusters"])}
    output.count(FunnelStep("headroom", "queries", tables.rows("adaptation_queries"), "test queries", test["queries"]))
