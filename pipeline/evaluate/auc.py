"""AUC over people's labels of pairs, all pairs together, by scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.bootstrap import ENDS
from darklode.pipeline.evaluate.paired import Chance, holm, turned_around
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import TABLES

AUC = Stage("auc", 1, ("manual_labels", "manual_scores"), ("evaluation", "evaluation_pairs"))

MEASURES = {"AUC-SAT": "satisfaction", "AUC-REL": "relevance"}
PART = "labelled"

SCORED = """
    SELECT concat_ws(chr(0), tenant, query_id) AS query_id, satisfaction, relevance,
           list(score ORDER BY place) AS scores
    FROM manual_labels JOIN manual_scores USING (tenant, query_id, text_id) JOIN asked USING (system)
    WHERE $tenant IS NULL OR tenant = $tenant
    GROUP BY tenant, query_id, text_id, satisfaction, relevance ORDER BY tenant, query_id, text_id
"""

Floats = NDArray[np.float64]
Rows = list[dict[str, Any]]


def area(labels: NDArray[np.bool_], scores: Floats, weights: NDArray[Any] | None = None) -> float:
    """Area under the ROC curve of all pairs; not a number where all labels are equal.

    Args:
        labels: shape (n_pairs,).
        scores: likewise; not a number is worse than any score.
        weights: how often each pair counts.

    Source: ScalingNote, 4.1.2.
    """
    from sklearn.metrics import roc_auc_score

    counted = np.ones(len(labels), bool) if weights is None else weights > 0
    if len(np.unique(labels[counted])) < 2:
        return float("nan")
    ranked = np.where(np.isnan(scores), -np.inf, scores)
    order = np.unique(ranked, return_inverse=True)[1]  # AUC looks at the order alone, and scikit-learn takes no -inf
    return float(roc_auc_score(labels, order, sample_weight=weights))


def auc(tables: Tables, output: Output, settings: EvaluateSettings, *, systems: Sequence[str], seed: int) -> None:
    """Write each system's AUC by satisfaction and by relevance, and the differences of every two systems.

    Queries are drawn anew, all their pairs with them; p is the share of resamples in which the difference turns around,
    twice.

    Args:
        tables: holds `manual_labels` and `manual_scores`.
        output: takes `evaluation` and `evaluation_pairs`.
        settings: resamples.
        systems: names, in the order of the tables.
        seed: of the resamples.
    """
    labels = tables.read("manual_labels", ["tenant"])
    tenants = pc.unique(labels["tenant"]).sort().to_pylist()
    means: Rows = []
    pairs: Rows = []
    for tenant in [None, *(tenants if len(tenants) > 1 else [])]:
        differences: Rows = []
        for measure, found in _drawn(tables, tenant, systems, Chance(settings.bootstrap, 0, seed)):
            where = {"tenant": tenant, "part": PART, "measure": measure, "queries": found.pop("queries")}
            means += [where | {"system": name, "ceiling": 1.0} | _told(values) for name, values in found.items()]
            differences += [where | row for row in _differences(found)]
        for row, corrected in zip(differences, holm([row["p"] for row in differences]), strict=True):
            pairs.append(row | {"p_holm": corrected})
    output.write("evaluation", pa.Table.from_pylist(means, schema=TABLES["evaluation"].schema))
    output.write("evaluation_pairs", pa.Table.from_pylist(pairs, schema=TABLES["evaluation_pairs"].schema))


def _drawn(
    tables: Tables, tenant: str | None, systems: Sequence[str], chance: Chance
) -> Iterator[tuple[str, dict[str, Any]]]:
    """For each measure that has both labels: the queries, and each system's AUC, first as it is, then resampled."""
    with tables.connect() as connection:
        connection.register("asked", pa.table({"system": list(systems), "place": range(len(systems))}))
        rows = connection.sql(SCORED, params={"tenant": tenant}).to_arrow_table()
    for measure, column in MEASURES.items():
        mine = rows.filter(pc.is_valid(rows[column])).combine_chunks()
        said = np.asarray(mine[column].to_numpy(), bool)
        if len(np.unique(said)) < 2:
            continue
        flat = pc.fill_null(pc.list_flatten(mine["scores"]), float("nan")).to_numpy()
        scores = np.asarray(flat, np.float64).reshape(len(said), len(systems))
        query = mine["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
        drawn = _drawn_queries(int(query.max()) + 1, chance)
        areas = {
            name: np.array([area(said, scores[:, at]), *(area(said, scores[:, at], one[query]) for one in drawn)])
            for at, name in enumerate(systems)
        }
        yield measure, {"queries": int(query.max()) + 1, **areas}


def _drawn_queries(n: int, chance: Chance) -> NDArray[np.uint16]:
    """How often each query counts when as many are drawn with replacement, shape (resamples, n)."""
    random, drawn = np.random.default_rng(chance.seed), np.empty((chance.resamples, n), np.uint16)
    for row in drawn:
        row[:] = random.multinomial(n, np.full(n, 1 / n))
    return drawn


def _told(values: Floats) -> dict[str, float]:
    low, high = np.nanpercentile(values[1:], ENDS)
    return {"value": float(values[0]), "low": float(low), "high": float(high)}


def _differences(found: Mapping[str, Floats]) -> Iterator[dict[str, Any]]:
    for other, system in combinations(found, 2):
        values = found[system] - found[other]
        told = _told(values)
        p = turned_around(values[1:])
        yield {"system": system, "other": other, "difference": told.pop("value"), "p": p} | told
