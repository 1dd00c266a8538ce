"""The release gate: whether the judge is good enough to publish its labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.errors import NotPublishable
from darklode.pipeline.judge.probe.rates import MIN_PROBES
from darklode.schemas.probe_tables import JUDGE_PROBE
from darklode.schemas.review_tables import RELEASE
from darklode.schemas.settings import ValidationSettings

GATE_STAGE = Stage("gate", 3, ("validation",), (RELEASE.name,))

FIGURE_LIMITS = {
    "kappa": "min_kappa",
    "null_rate": "max_null_rate",
    "recall": "min_recall",
    "probe_rate": "max_probe_rate",
}
"""Figures with a limit, and the settings of the limits."""

VALIDATION_SQL = "SELECT kappa, null_rate, recall FROM validation WHERE tenant IS NULL AND retriever IS NULL"

# Unknown if the rate of a kind with enough probes is: because probing stopped, or because replies were unreadable.
PROBE_SQL = f"""
    SELECT CASE WHEN count(*) FILTER (
               unanswered > 0 OR (pairs < {MIN_PROBES} AND pairs + unreadable >= {MIN_PROBES})
           ) = 0 THEN max(rate) FILTER (pairs >= {MIN_PROBES}) END AS probe_rate
    FROM judge_probe
"""


def gate(tables: Tables, output: Output, settings: ValidationSettings) -> None:
    """Write whether the judge meets the limits over all tenants; an unknown figure fails its limit.

    Args:
        tables: must contain `validation`, and `judge_probe` if the judge was probed.
        output: receives `release`, one row per figure.
        settings: min_kappa, max_null_rate, min_recall, max_probe_rate.
    """
    figures: dict[str, float | None] = dict.fromkeys(FIGURE_LIMITS)
    for table, sql in (("validation", VALIDATION_SQL), (JUDGE_PROBE.name, PROBE_SQL)):
        if table in tables:
            figures |= next(iter(tables.sql(sql).to_pylist()), {})
    gate_rows = []
    for figure, setting in FIGURE_LIMITS.items():
        value, limit = figures[figure], getattr(settings, setting)
        passed = None if limit is None else value is not None and _meets_limit(setting, value, limit)
        gate_rows.append({"figure": figure, "value": value, "asked": limit, "passed": passed})
    output.write(RELEASE.name, pa.Table.from_pylist(gate_rows, schema=RELEASE.schema))


def _meets_limit(setting: str, value: float, limit: float) -> bool:
    return value <= limit if setting.startswith("max") else value >= limit


def release(tables: Tables) -> list[dict[str, Any]]:
    """Rows of the table `release`."""
    rows: list[dict[str, Any]] = tables.sql("SELECT * FROM release ORDER BY figure").to_pylist()
    return rows


def release_outcome(rows: Iterable[Mapping[str, Any]]) -> str:
    """`published`, `held back`, or `not asked` without limits; from rows of `release`."""
    passed = {row["passed"] for row in rows} - {None}
    return "held back" if False in passed else "published" if passed else "not asked"


def require_release(rows: Iterable[Mapping[str, Any]], url: str) -> None:
    """Raise an error for a run that was held back.

    Args:
        rows: rows of `release`.
        url: address of the run, for the message.

    Raises:
        NotPublishable: a limit is not met; the message names all of them.
    """
    failed = [format_failure(row) for row in rows if row["passed"] is False]
    if failed:
        raise NotPublishable(
            f"{url} cannot be published: {'; '.join(failed)}. Inspect the disagreements, then change the judge, its "
            "prompt or its threshold and build again, or review more pairs"
        )


def format_failure(row: Mapping[str, Any]) -> str:
    """A failed figure and its limit, in words."""
    setting = FIGURE_LIMITS[row["figure"]]
    value_text = "unknown (too few labels)" if row["value"] is None else f"{row['value']:.3f}"
    if row["value"] is None and row["figure"] == "null_rate":
        value_text = "unknown (no verdicts)"
    if row["value"] is None and row["figure"] == "probe_rate":
        value_text = (
            f"unknown (a kind of probe has missing replies, or none has {MIN_PROBES} readable ones: run "
            "`darklode judge probe`)"
        )
    bound = "at most" if setting.startswith("max") else "at least"
    return f"{row['figure']} is {value_text}, but validation.{setting} requires {bound} {row['asked']:g}"
