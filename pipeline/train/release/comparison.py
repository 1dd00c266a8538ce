"""Results of an ablation: each system's difference to the base with intervals and p-values, as a table and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.card import cell, document
from darklode.pipeline.evaluate.measures import Floats, compute_measures, upper_bounds
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired, holm, is_above_zero
from darklode.pipeline.evaluate.stage import JUDGED, EvaluationQueries
from darklode.pipeline.train.fit.ablation import COMPARED
from darklode.pipeline.train.fit.baselines import BM25, CLOZE, JOINT, SHUFFLED
from darklode.pipeline.train.release.evaluation import MEASURES
from darklode.pipeline.train.release.verdict import DECIDES
from darklode.schemas.adaptation import Method
from darklode.schemas.adaptation_tables import ADAPTER_HOLES, COMPARISON, COMPARISON_LISTS, COMPARISON_QUERIES
from darklode.schemas.evaluation import EvaluateSettings

SUMMED = Stage(
    "adapt_comparison",
    4,
    ("test_queries", "test_labels", COMPARISON_LISTS.name),
    (COMPARISON_QUERIES.name, COMPARISON.name),
)

PAGE = "comparison.md"

READING = """\
Each system was chosen as `adapt` chooses, and asked once for each seed: means over seeds by query first. `low`
and `high` bound what it has more than the base (95 %, over clusters of queries), `p_holm` is corrected for all systems
and measures of a part. `chosen: base` is a system that was not preferred to the base. A lift that
shuffled labels have, too, does not come from the labels: `over_shuffled` is what is left of it. Judged@10 is the share
of the first ten that has a label, by the judge that filled holes, too: what has none counts as not relevant. Seconds
are the processor's, choice included; `peak_mb` is the most memory beyond what the process held before (Linux). `joint`,
where it is compared, trains one encoder for queries and documents: it searches an index of its own, embedded again."""

BY_SYSTEM = """
    SELECT system, max(value) FILTER (measure = 'nDCG@10') AS "nDCG@10",
           max(difference) FILTER (measure = 'nDCG@10') AS difference, max(low) FILTER (measure = 'nDCG@10') AS low,
           max(high) FILTER (measure = 'nDCG@10') AS high, max(p_holm) FILTER (measure = 'nDCG@10') AS p_holm,
           max(over_control) FILTER (measure = 'nDCG@10') AS over_shuffled,
           max(over_low) FILTER (measure = 'nDCG@10') AS over_low,
           max(over_high) FILTER (measure = 'nDCG@10') AS over_high,
           max(p) FILTER (measure = 'nDCG@10') AS p, max(over_p) FILTER (measure = 'nDCG@10') AS over_p,
           max(value) FILTER (measure = 'R@10') AS "R@10", max(ceiling) FILTER (measure = 'R@10') AS "R@10 at most",
           max(value) FILTER (measure = 'R@100') AS "R@100", max(value) FILTER (measure = 'Judged@10') AS "Judged@10",
           max(seeds) AS seeds, max(queries) AS queries, max(clusters) AS clusters
    FROM comparison WHERE part = $part GROUP BY system ORDER BY "nDCG@10" DESC, system
"""

ENTRIES = "SELECT DISTINCT system, seed FROM comparison_lists ORDER BY system, seed"
LISTS = """
    SELECT query_id, rank, text_id FROM comparison_lists WHERE system = $1 AND seed = $2
    ORDER BY query_id, rank
"""

TESTED = [name for name in MEASURES if not name.startswith(JUDGED)]

OVER_CONTROL = {"difference": "over_control", "low": "over_low", "high": "over_high", "p": "over_p"}

METHODS = (*get_args(Method), JOINT)

CONTROLS = {
    SHUFFLED: ("the same positives, each at some other query, give", "needs no labels"),
    CLOZE: ("sentences that ask for their own texts give", "comes without labelling"),
    BM25: ("each query's first text by BM25 gives", "comes without labelling"),
}

Row = dict[str, Any]


def comparison(tables: Tables, output: Output, settings: EvaluateSettings, *, seed: int) -> None:
    """Write each system's mean of each measure and its difference to the base and to the control, for each query part.

    Args:
        tables: `comparison_lists` and those of `comparison_holes`.
        output: `comparison_queries` and `comparison`.
        settings: resamples and permutations.
        seed: of both.
    """
    queries = EvaluationQueries.from_tables(tables)
    ids = queries.rows["query_id"].to_pylist()
    labels = tables.read("test_labels")
    values = {name: _mean(list(runs)) for name, runs in _measure_systems(tables, output, queries, labels)}
    bounds = upper_bounds(labels, ids, MEASURES)
    chance = ResamplingSettings(
        settings.n_resamples, settings.permutations, seed, tests=(len(values) - 1) * len(TESTED)
    )
    control = next((runs for name, (runs, _) in values.items() if name.endswith(SHUFFLED)), None)
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

    base: Floats
    control: Floats | None
    groups: NDArray[np.int64]
    chance: ResamplingSettings

    def rows(self, name: str, values: Floats) -> list[Row]:
        """A system's rows of `comparison`, one per measure."""
        lift = compare_paired(values, self.base, self.groups, self.chance)
        control = None if name.endswith(SHUFFLED) else self.control
        over = None if control is None else compare_paired(values, control, self.groups, self.chance)
        rows: list[Row] = []
        for at, measure in enumerate(MEASURES):
            row: Row = {"measure": measure, "value": values[:, at].mean(), "p": None, "p_holm": None}
            if name != "base" and not measure.startswith(JUDGED):
                row |= {column: lift.row(at)[column] for column in ("difference", "low", "high", "p")}
                row |= {to: over.row(at)[column] for column, to in OVER_CONTROL.items()} if over else {}
            rows.append(row)
        return rows


def _measure_systems(
    tables: Tables, output: Output, queries: EvaluationQueries, labels: pa.Table
) -> Iterator[tuple[str, Iterator[Floats]]]:
    """Per-query values of each system and seed, shape (n_queries, n_measures); also writes them."""
    entries = tables.sql(ENTRIES).to_pylist()
    for system, entries_of_system in groupby(entries, key=itemgetter("system")):
        yield system, (_values(tables, output, queries, labels, entry) for entry in entries_of_system)


def _values(tables: Tables, output: Output, queries: EvaluationQueries, labels: pa.Table, entry: Row) -> Floats:
    n, kinds = queries.rows.num_rows, len(MEASURES)
    values = compute_measures(
        [tables.sql(LISTS, list(entry.values()))], labels, queries.rows["query_id"].to_pylist(), MEASURES
    )
    measure_index = pa.array(np.repeat(np.arange(n), kinds))
    columns = {name: queries.rows[name].take(measure_index) for name in ("tenant", "query_id")}
    columns |= {name: pa.repeat(value, n * kinds) for name, value in entry.items()}
    columns |= {"measure": pa.array(list(MEASURES) * n), "value": pa.array(values.reshape(-1))}
    output.write(COMPARISON_QUERIES.name, COMPARISON_QUERIES.rows(columns))
    return values


def _mean(seeds: Sequence[Floats]) -> tuple[Floats, int]:
    """Per-query mean over seeds, and the number of seeds. Identical values stay bitwise identical, which a plain mean
    does not
    guarantee.
    """
    first = seeds[0]
    return first + np.mean([values - first for values in seeds], axis=0), len(seeds)


def by_system(run: Run, part: str) -> pa.Table:
    """One row per system, the best first."""
    with run.tables(COMPARISON.name).connect() as connection:
        return connection.sql(BY_SYSTEM, params={"part": part}).to_arrow_table()


def explain_controls(run: Run) -> list[str]:
    """What share of the gain the control reaches, one sentence per system."""
    rows = {row["system"]: row for row in by_system(run, deciding(run)).to_pylist()}
    sentences = []
    for name, (claim, worth) in CONTROLS.items():
        for control, row in rows.items():
            method = control.removesuffix(name)
            if control.endswith(name) and method in rows and row["low"] is not None:
                gain_text = f"{row['difference']:+.3f} of {method}'s {rows[method]['difference']:+.3f}"
                gains = f"{gain_text} {worth}" if is_above_zero(row) else f"{method} is not seen to gain"
                sentences.append(f"{gains}: {claim} {_format_interval(row['difference'], row['low'], row['high'])}.")
    for name, row in rows.items():
        if name in METHODS and row["over_low"] is not None:
            over = _format_interval(row["over_shuffled"], row["over_low"], row["over_high"])
            worthy = is_above_zero(row | {"low": row["over_low"], "p": row["over_p"]})
            sure = "is worth" if worthy else "is not shown to be worth anything"
            sentences.append(f"What {name} learns from the labels {sure}: {over} over shuffled ones.")
    return sentences


def _format_interval(mean: float, low: float, high: float) -> str:
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def deciding(run: Run) -> str:
    """The query part that a claim rests on."""
    parts = run.tables(COMPARISON.name).read(COMPARISON.name)["part"].unique().to_pylist()
    return DECIDES if DECIDES in parts else "counted"


def training_efforts(run: Run) -> pa.Table:
    """Selected setting and cost, one row per system and seed."""
    manifest = run.manifest(COMPARED)
    assert manifest is not None
    return pa.Table.from_pylist([unit["facts"] for unit in manifest.units.values() if unit["facts"]])


def page(run: Run, sources: list[str]) -> bytes:
    """The page in Markdown; the deciding part comes first."""
    manifest = run.manifest(SUMMED)
    assert manifest is not None
    parts = run.tables(COMPARISON.name).read(COMPARISON.name)["part"].unique().to_pylist()
    first = deciding(run)
    tables = [
        (f"Test queries: {part}", by_system(run, part), "")
        for part in sorted(parts, key=lambda query_part: query_part != first)
    ]
    filled = run.tables(ADAPTER_HOLES.name).read(ADAPTER_HOLES.name)
    tables += [
        ("Labels in the first ten, and what the judge added", filled, ""),
        ("What it took", training_efforts(run), ""),
    ]
    source_names = ", ".join(f"`{cell(query_part)}`" for query_part in sources)
    control_sentences = "\n".join(f"- {query_part}" for query_part in explain_controls(run))
    head = [
        "# Ways to adapt, compared",
        f"Learned from: {source_names}.",
        READING,
        *([control_sentences] if control_sentences else []),
    ]
    return document(head, tables, []).encode()
