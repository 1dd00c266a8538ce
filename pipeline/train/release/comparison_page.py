"""The page of an ablation: scores and differences by system, the controls explained, and the cost of each method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.card import cell, document
from darklode.pipeline.evaluate.paired import holm, is_above_zero
from darklode.pipeline.train.release.ablation import ABLATION_STAGE
from darklode.pipeline.train.release.baselines import BM25_SUFFIX, CLOZE_SUFFIX, JOINT, SHUFFLED_SUFFIX
from darklode.pipeline.train.release.verdict import DECIDING_PART
from darklode.schemas.adaptation import Method
from darklode.schemas.adaptation_tables import UNJUDGED_RESULTS
from darklode.schemas.comparison_tables import COMPARISON

PAGE = "comparison.md"

PAGE_NOTE = """\
Each system was selected as `adapt` selects, and ranked the test queries once per seed; values are averaged over seeds
by query first. `low` and `high` are a 95 % interval of the difference to the base, over clusters of queries; `p_holm`
is corrected for all systems and measures of a part. `chosen: base`: the base was preferred to the system. A gain that
shuffled labels also reach does not come from the labels: `over_shuffled` is the difference to them. Judged@10 is the
share of the top ten with a label, those judged for this comparison included; unlabelled texts count as not relevant.
Seconds are processor time, selection included; `peak_mb` is the peak memory beyond what the process used before
(Linux), `gpu_peak_mb` that of the GPU's memory. `joint` trains one encoder for queries and documents and searches its
own index of re-encoded texts."""

SERVED_AS_HYBRID = (
    "adapt.serve_as is hybrid, but this comparison selects and tests each encoder alone, without BM25; `adapt` "
    "selects and tests the fusion."
)

SYSTEM_SCORES_SQL = """
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

METHODS = (*get_args(Method), JOINT)

CONTROLS = {
    SHUFFLED_SUFFIX: ("the same positives, each at some other query, give", "needs no labels"),
    CLOZE_SUFFIX: ("sentences that ask for their own texts give", "comes without labels"),
    BM25_SUFFIX: ("each query's first text by BM25 gives", "comes without labels"),
}


def by_system(run: Run, part: str) -> pa.Table:
    """One row per system, the best first."""
    with run.tables(COMPARISON.name).connect() as connection:
        return connection.sql(SYSTEM_SCORES_SQL, params={"part": part}).to_arrow_table()


def explain_controls(run: Run) -> list[str]:
    """What share of the gain the control reaches, one sentence per system; what labels are worth, Holm-corrected over
    the methods.
    """
    rows = {row["system"]: row for row in by_system(run, deciding(run)).to_pylist()}
    sentences = []
    for name, (claim, worth) in CONTROLS.items():
        for control, row in rows.items():
            method = control.removesuffix(name)
            if control.endswith(name) and method in rows and row["low"] is not None:
                gain_text = f"{row['difference']:+.3f} of {method}'s {rows[method]['difference']:+.3f}"
                gains = f"{gain_text} {worth}" if is_above_zero(row) else f"{method} is not seen to gain"
                sentences.append(f"{gains}: {claim} {_format_interval(row['difference'], row['low'], row['high'])}.")
    methods = [row for name, row in rows.items() if name in METHODS and row["over_low"] is not None]
    for row, p in zip(methods, holm([row["over_p"] for row in methods]), strict=True):
        over = _format_interval(row["over_shuffled"], row["over_low"], row["over_high"])
        worthy = is_above_zero(row | {"low": row["over_low"], "p": p})
        sure = "is worth" if worthy else "is not shown to be worth anything"
        sentences.append(f"What {row['system']} learns from the labels {sure}: {over} over shuffled ones.")
    return sentences


def _format_interval(mean: float, low: float, high: float) -> str:
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def deciding(run: Run) -> str:
    """The query part that a claim rests on."""
    parts = run.tables(COMPARISON.name).read(COMPARISON.name)["part"].unique().to_pylist()
    return DECIDING_PART if DECIDING_PART in parts else "counted"


def training_efforts(run: Run) -> pa.Table:
    """Selected setting and cost, one row per system and seed."""
    manifest = run.manifest(ABLATION_STAGE)
    assert manifest is not None
    return pa.Table.from_pylist([unit["facts"] for unit in manifest.units.values() if unit["facts"]])


def page(run: Run, sources: list[str], notes: Sequence[str] = ()) -> bytes:
    """The page in Markdown; the deciding part comes first.

    Args:
        run: the finished comparison.
        sources: the runs that it was trained on, as given.
        notes: sentences about its settings.
    """
    parts = run.tables(COMPARISON.name).read(COMPARISON.name)["part"].unique().to_pylist()
    first = deciding(run)
    tables = [
        (f"Test queries: {part}", by_system(run, part), "") for part in sorted(parts, key=lambda part: part != first)
    ]
    filled = run.tables(UNJUDGED_RESULTS.name).read(UNJUDGED_RESULTS.name)
    tables += [
        ("Labels in the top ten, before and after judging", filled, ""),
        ("Cost", training_efforts(run), ""),
    ]
    source_names = ", ".join(f"`{cell(source)}`" for source in sources)
    control_sentences = "\n".join(f"- {sentence}" for sentence in explain_controls(run))
    head = [
        "# Comparison of adaptation methods",
        f"Trained on: {source_names}.",
        *notes,
        PAGE_NOTE,
        *([control_sentences] if control_sentences else []),
    ]
    return document(head, tables, []).encode()
