"""Measures of two evaluated runs side by side, with paired differences on the test queries of both."""

from __future__ import annotations

from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.types import Doubles, Row
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired, holm

SCHEMA = pa.schema(
    [
        ("system", pa.string()),
        ("measure", pa.string()),
        ("before", pa.float64()),
        ("after", pa.float64()),
        ("difference", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("p_holm", pa.float64()),
        ("queries", pa.int64()),
    ]
)

# Test queries of both runs that are counted in both: unseen in training, or unknown.
SHARED_QUERIES_SQL = """
    SELECT tenant, query_id, new."group" FROM old_test_queries old JOIN new_test_queries new USING (tenant, query_id)
    WHERE old.text = new.text AND coalesce(old.kind, 'unseen') = 'unseen' AND coalesce(new.kind, 'unseen') = 'unseen'
    ORDER BY tenant, query_id
"""

# An uncertain label is not the same as none: measures leave its text out of the ranking.
CHANGED_LABELS_SQL = """
    SELECT count(DISTINCT (tenant, query_id)) FROM shared_queries JOIN (
        SELECT tenant, query_id FROM old_test_labels old FULL JOIN new_test_labels new
            USING (tenant, query_id, text_id)
        WHERE old.relevance IS DISTINCT FROM new.relevance OR old.text_id IS DISTINCT FROM new.text_id
    ) USING (tenant, query_id)
"""


# Values of each system and measure, in the order of the shared queries.
VALUES_SQL = """
    SELECT system, measure, list(value ORDER BY tenant, query_id) AS query_values
    FROM {run}_evaluation_queries SEMI JOIN shared_queries USING (tenant, query_id) GROUP BY ALL
"""


@dataclass(frozen=True)
class EvaluationDiff:
    """Comparison of two evaluated runs.

    Attributes:
        rows: a row per system and measure: means before and after over the shared queries (null for a run without the
            system), paired difference with 95 % interval, p-value with Holm's correction over all rows.
        queries: number of test queries that both runs have and count.
        relabelled: how many of them have other labels in the newer run.
    """

    rows: pa.Table
    queries: int
    relabelled: int


def compare_evaluations(old: Tables, new: Tables, chance: ResamplingSettings, n_measures: int = 1) -> EvaluationDiff:
    """Compare the systems of two runs on the test queries that both have, each by the labels of its own run.

    Args:
        old: `duckdb_views.all_tables` of the older run.
        new: `duckdb_views.all_tables` of the newer run.
        chance: resamples and sign flips.
        n_measures: maximum number of measures: the first ones that both runs have.
    """
    with scratch() as connection:
        for prefix, tables in (("old", old), ("new", new)):
            for name in ("test_queries", "test_labels", "evaluation_queries"):
                tables.view(connection, f"{prefix}_{name}", name)
        shared = connection.sql(SHARED_QUERIES_SQL).to_arrow_table().combine_chunks()
        connection.register("shared_queries", shared)
        relabelled = int(connection.sql(CHANGED_LABELS_SQL).fetchall()[0][0])
        values = {run: _values(connection, run) for run in ("old", "new")}
    old_names, new_names = _names(old), _names(new)
    measures = [measure for measure in new_names["measure"] if measure in old_names["measure"]][:n_measures]
    systems = dict.fromkeys([*old_names["system"], *new_names["system"]]) if shared.num_rows else {}
    clusters = pc.binary_join_element_wise(shared["tenant"], shared["group"], "\0").dictionary_encode()
    groups = np.asarray(pa.chunked_array(clusters).combine_chunks().indices, np.int64)
    chance = replace(chance, tests=max(1, len(systems) * len(measures)))
    rows = [
        {"system": system, "measure": measure, "queries": shared.num_rows}
        | _differences(values["old"].get((system, measure)), values["new"].get((system, measure)), groups, chance)
        for system in systems
        for measure in measures
    ]
    tested = [row for row in rows if "p" in row]
    for row, corrected in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"] = corrected
    return EvaluationDiff(pa.Table.from_pylist(rows, schema=SCHEMA), shared.num_rows, relabelled)


def _values(connection: duckdb.DuckDBPyConnection, run: str) -> dict[tuple[str, str], Doubles]:
    """Values of each system and measure, shape (n_queries,)."""
    rows = connection.sql(VALUES_SQL.format(run=run)).fetchall()
    return {(system, measure): np.array(query_values, np.float64) for system, measure, query_values in rows}


def _names(tables: Tables) -> dict[str, list[str]]:
    """Names of systems and measures, in the order of `evaluation`; measures of human labels are left out."""
    rows = tables.read("evaluation", ["system", "measure", "part"])
    counted = rows.filter(pc.equal(rows["part"], "counted"))
    return {name: pc.unique(counted[name]).to_pylist() for name in ("system", "measure")}


def _differences(
    before: Doubles | None, after: Doubles | None, groups: NDArray[np.int64], chance: ResamplingSettings
) -> Row:
    """Means before and after, and the difference if both runs have the system."""
    row: Row = {
        "before": None if before is None else float(before.mean()),
        "after": None if after is None else float(after.mean()),
    }
    if before is None or after is None:
        return row
    return row | compare_paired(after[:, None], before[:, None], groups, chance).row(0)
