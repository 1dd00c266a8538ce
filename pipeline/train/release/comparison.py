"""Results of an ablation: each system's difference to the base and to the control, with intervals and p-values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.types import Doubles, Row
from darklode.pipeline.evaluate.measures import compute_measures, upper_bounds
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired, holm
from darklode.pipeline.evaluate.stage import JUDGED_MEASURE, EvaluationQueries
from darklode.pipeline.train.release.baselines import SHUFFLED_SUFFIX
from darklode.pipeline.train.release.evaluation import MEASURES
from darklode.schemas.comparison_tables import COMPARISON, COMPARISON_LISTS, COMPARISON_QUERIES
from darklode.schemas.evaluation import EvaluateSettings

COMPARISON_STAGE = Stage(
    "adapt_comparison",
    4,
    ("test_queries", "test_labels", COMPARISON_LISTS.name),
    (COMPARISON_QUERIES.name, COMPARISON.name),
)

SYSTEMS_SQL = "SELECT DISTINCT system, seed FROM comparison_lists ORDER BY system, seed"
SYSTEM_LISTS_SQL = """
    SELECT query_id, rank, text_id FROM comparison_lists WHERE system = $1 AND seed = $2
    ORDER BY query_id, rank
"""

TESTED_MEASURES = [name for name in MEASURES if not name.startswith(JUDGED_MEASURE)]

CONTROL_COLUMNS = {"difference": "over_control", "low": "over_low", "high": "over_high", "p": "over_p"}


def comparison(tables: Tables, output: Output, settings: EvaluateSettings, *, seed: int) -> None:
    """Write each system's mean of each measure and its difference to the base and to the control, for each query part.

    Args:
        tables: `comparison_lists`, and the tables of the stage `comparison_unjudged_results`.
        output: receives `comparison_queries` and `comparison`.
        settings: numbers of resamples and permutations.
        seed: seed of the resamples and of the permutations.
    """
    queries = EvaluationQueries.from_tables(tables)
    ids = queries.rows["query_id"].to_pylist()
    labels = tables.read("test_labels")
    values = {name: _mean(list(runs)) for name, runs in _measure_systems(tables, output, queries, labels)}
    bounds = upper_bounds(labels, ids, MEASURES)
    chance = ResamplingSettings(
        settings.n_resamples, settings.permutations, seed, tests=(len(values) - 1) * len(TESTED_MEASURES)
    )
    control = next((runs for name, (runs, _) in values.items() if name.endswith(SHUFFLED_SUFFIX)), None)
    for part, chosen in queries.parts().items():
        _, groups = np.unique(queries.groups[chosen], return_inverse=True)
        against = PairedTests(values["base"][0][chosen], None if control is None else control[chosen], groups, chance)
        upper_bound_means = bounds[chosen].mean(axis=0)
        rows = [
            {
                "part": part,
                "system": name,
                "ceiling": upper_bound_means[at],
                "seeds": seeds,
                "queries": int(chosen.sum()),
            }
            | {"clusters": int(groups.max()) + 1, **row}
            for name, (of_system, seeds) in values.items()
            for at, row in enumerate(against.rows(name, of_system[chosen]))
        ]
        tested_rows = [row for row in rows if row["p"] is not None]
        for row, corrected in zip(tested_rows, holm([row["p"] for row in tested_rows]), strict=True):
            row["p_holm"] = corrected
        output.write(COMPARISON.name, pa.Table.from_pylist(rows, schema=COMPARISON.schema))


@dataclass(frozen=True)
class PairedTests:
    """Paired tests of systems on the same queries, against the base and against the control with shuffled labels."""

    base: Doubles
    control: Doubles | None
    groups: NDArray[np.int64]
    chance: ResamplingSettings

    def rows(self, name: str, values: Doubles) -> list[Row]:
        """A system's rows of `comparison`, one per measure."""
        lift = compare_paired(values, self.base, self.groups, self.chance)
        control = None if name.endswith(SHUFFLED_SUFFIX) else self.control
        over = None if control is None else compare_paired(values, control, self.groups, self.chance)
        rows: list[Row] = []
        for at, measure in enumerate(MEASURES):
            row: Row = {"measure": measure, "value": values[:, at].mean(), "p": None, "p_holm": None}
            if name != "base" and not measure.startswith(JUDGED_MEASURE):
                row |= {column: lift.row(at)[column] for column in ("difference", "low", "high", "p")}
                row |= {to: over.row(at)[column] for column, to in CONTROL_COLUMNS.items()} if over else {}
            rows.append(row)
        return rows


def _measure_systems(
    tables: Tables, output: Output, queries: EvaluationQueries, labels: pa.Table
) -> Iterator[tuple[str, Iterator[Doubles]]]:
    """Per-query values of each system and seed, shape (n_queries, n_measures); also writes them."""
    entries = tables.sql(SYSTEMS_SQL).to_pylist()
    for system, entries_of_system in groupby(entries, key=itemgetter("system")):
        yield system, (_values(tables, output, queries, labels, entry) for entry in entries_of_system)


def _values(tables: Tables, output: Output, queries: EvaluationQueries, labels: pa.Table, entry: Row) -> Doubles:
    n, kinds = queries.rows.num_rows, len(MEASURES)
    values = compute_measures(
        [tables.sql(SYSTEM_LISTS_SQL, list(entry.values()))], labels, queries.rows["query_id"].to_pylist(), MEASURES
    )
    measure_index = pa.array(np.repeat(np.arange(n), kinds))
    columns = {name: queries.rows[name].take(measure_index) for name in ("tenant", "query_id")}
    columns |= {name: pa.repeat(value, n * kinds) for name, value in entry.items()}
    columns |= {"measure": pa.array(list(MEASURES) * n), "value": pa.array(values.reshape(-1))}
    output.write(COMPARISON_QUERIES.name, COMPARISON_QUERIES.rows(columns))
    return values


def _mean(seeds: Sequence[Doubles]) -> tuple[Doubles, int]:
    """Per-query mean over seeds, and the number of seeds. Identical values stay bitwise identical, which a plain mean
    does not guarantee.
    """
    first = seeds[0]
    return first + np.mean([values - first for values in seeds], axis=0), len(seeds)
