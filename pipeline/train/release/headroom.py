"""What needs no labels, and whether adaptation can help, before training; never uses the test queries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.evaluate.measures import compute_measures, upper_bounds
from darklode.pipeline.evaluate.paired import MIN_CLUSTERS, detectable_gain
from darklode.pipeline.train.data.fusion import by_value
from darklode.pipeline.train.data.system_names import BM25, CENTERING, WHITENED
from darklode.pipeline.train.release.evaluation import MEASURES
from darklode.schemas.adaptation_tables import HEADROOM, LEXICAL_RANKINGS

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet
    from darklode.pipeline.train.release.bm25_rankings import Bm25Cache

HEADROOM_STAGE = Stage(
    "headroom",
    7,
    ("adaptation_queries", "adaptation_labels", "adaptation_texts", "term_queries"),
    (HEADROOM.name, LEXICAL_RANKINGS.name),
)


TOP = 10
"""Results per query that are judged before systems are compared: the cutoff of nDCG@10."""

PAIRED_SD = 0.2
"""Standard deviation of the per-query nDCG@10 difference of an adapted encoder to its base (docs/guides/adapt.md)."""


def detectable(clusters: int) -> float | None:
    """Smallest lift in nDCG@10 that this many clusters detect with 80 % power at `PAIRED_SD`; None for too few
    clusters.
    """
    return detectable_gain(PAIRED_SD / math.sqrt(clusters), clusters) if clusters >= MIN_CLUSTERS else None


def measure_headroom(tables: Tables, output: Output, base: BaseEncoder, bm25: Bm25Cache | None = None) -> None:
    """Write the scores of the label-free systems, of the base's top 100 in ideal order, of the judge's order, and of a
    perfect ranking; and the BM25 rankings that hybrid search is selected with.

    Args:
        tables: the tables of `adaptation_pairs`.
        output: receives `headroom` and `lexical_rankings`; its facts count the test queries and the detectable lift.
        base: the encoder to adapt.
        bm25: where BM25 indexes are kept for later stages.
    """
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.fit.model_selection import selection_queries
    from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
    from darklode.pipeline.train.release.label_free import LabelFree

    frozen = base.open(tables)
    task = Task.from_tables(tables, frozen, same_document=True)
    queries = selection_queries(task)
    label_free = LabelFree.select(task, Bm25Rankings(base, frozen, bm25), queries)
    rankings = label_free.rankings(queries)
    for system, values in (_values(rankings, queries) | _bounds(queries, rankings["base"])).items():
        n = len(MEASURES)
        columns = {"system": [system] * n, "measure": list(MEASURES), "value": values, "queries": [len(queries)] * n}
        centering = label_free.settings[CENTERING] if system == WHITENED else None
        columns |= {"setting": [label_free.settings.get(system)] * n, "centering": [centering] * n}
        columns |= {"label_free": [system in rankings] * n}
        output.write(HEADROOM.name, HEADROOM.rows(columns))
    tenant, lexical = tables.read("adaptation_queries", ["tenant"])["tenant"][0], rankings[BM25]
    columns = {name: lexical[name] for name in ("query_id", "rank", "text_id", "score")}
    columns |= {"tenant": pa.repeat(tenant, lexical.num_rows)}
    output.write(LEXICAL_RANKINGS.name, LEXICAL_RANKINGS.rows(columns))
    output.facts["unlabelled"] = _unlabelled_texts(rankings, queries)
    _count(tables, output)


def _values(rankings: Mapping[str, pa.Table], queries: QuerySet) -> dict[str, list[float]]:
    """Mean of each measure, by system."""
    ids = queries.ids.to_pylist()
    return {
        name: [float(value) for value in compute_measures([rows], queries.labels, ids, MEASURES).mean(axis=0)]
        for name, rows in rankings.items()
    }


def _bounds(queries: QuerySet, base: pa.Table) -> dict[str, list[float]]:
    """Systems that know labels: what an encoder could reach at most."""
    labels = queries.labels
    judged = labels.filter(pc.is_valid(labels["probability"]))
    systems = {"base, its first 100 in the best order": _best(base, labels)}
    if judged.num_rows:
        systems["judge: labelled texts by its probability"] = by_value(judged, "probability")
    best = upper_bounds(labels, queries.ids.to_pylist(), MEASURES).mean(axis=0)
    return _values(systems, queries) | {"perfect": [float(value) for value in best]}


def _unlabelled_texts(rankings: Mapping[str, pa.Table], queries: QuerySet) -> float:
    """Mean number of unlabelled texts that any system has in the top ten of a query."""
    tops = pa.concat_tables(
        [rows.filter(pc.less_equal(rows["rank"], TOP)).select(["query_id", "text_id"]) for rows in rankings.values()]
    )
    texts = tops.group_by(["query_id", "text_id"]).aggregate([])
    unlabelled = texts.join(
        queries.labels.select(["query_id", "text_id"]), ["query_id", "text_id"], join_type="left anti"
    )
    return float(unlabelled.num_rows / max(len(queries), 1))


def _best(rankings: pa.Table, labels: pa.Table) -> pa.Table:
    """The same rankings with relevant texts first."""
    right = labels.select(["query_id", "text_id", "relevance"])
    joined = rankings.select(["query_id", "text_id"]).join(right, ["query_id", "text_id"])
    relevance = pc.fill_null(joined["relevance"], 0)
    return by_value(joined.set_column(joined.schema.get_field_index("relevance"), "relevance", relevance), "relevance")


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
