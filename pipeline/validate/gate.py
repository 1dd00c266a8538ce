"""The release gate: whether the judge is good enough for its labels to be published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.errors import NotPublishable
from darklode.schemas.review_tables import RELEASE
from darklode.schemas.settings import ValidationSettings

GATE = Stage("gate", 1, ("validation",), (RELEASE.name,))

FIGURES = {"kappa": "min_kappa", "null_rate": "max_null_rate", "recall": "min_recall"}
"""The figures that can be asked for, and the settings that ask."""


def gate(tables: Tables, output: Output, settings: ValidationSettings) -> None:
    """Write what was asked of the judge over all tenants, and whether it was reached; what is unknown was not.

    Args:
        tables: holds `validation`.
        output: takes `release`, one row for each of `FIGURES`.
        settings: min_kappa, max_null_rate, min_recall.
    """
    rows = tables.sql("SELECT kappa, null_rate, recall FROM validation WHERE tenant IS NULL AND retriever IS NULL")
    figures: Mapping[str, float | None] = (rows.to_pylist() or [dict.fromkeys(FIGURES)])[0]
    gate_rows = []
    for figure, setting in FIGURES.items():
        value, limit = figures[figure], getattr(settings, setting)
        passed = None if limit is None else value is not None and _meets_limit(setting, value, limit)
        gate_rows.append({"figure": figure, "value": value, "asked": limit, "passed": passed})
    output.write(RELEASE.name, pa.Table.from_pylist(gate_rows, schema=RELEASE.schema))


def _meets_limit(setting: str, value: float, limit: float) -> bool:
    return value <= limit if setting.startswith("max") else value >= limit


def release(tables: Tables) -> list[dict[str, Any]]:
    """Rows of `release`."""
    rows: list[dict[str, Any]] = tables.sql("SELECT * FROM release ORDER BY figure").to_pylist()
    return rows


def release_outcome(rows: Iterable[Mapping[str, Any]]) -> str:
    """`published`, `held back` or `not asked`, from rows of `release`."""
    passed = {row["passed"] for row in rows} - {None}
    return "held back" if False in passed else "published" if passed else "not asked"


def require_release(rows: Iterable[Mapping[str, Any]], url: str) -> None:
    """Refuse a run that was held back.

    Args:
        rows: of `release`.
        url: of the run, for the message.

    Raises:
        NotPublishable: a figure was not reached; the message names each of them.
    """
    failed = [format_failure(row) for row in rows if row["passed"] is False]
    if failed:
        raise NotPublishable(
            f"{url} may not be published: {'; '.join(failed)}. Read the disagreements, then change the judge, its "
            "prompt or its threshold and build again, or have more pairs reviewed"
        )


def format_failure(row: Mapping[str, Any]) -> str:
    """What was found of a figure, and what was asked, in words."""
    setting = FIGURES[row["figure"]]
    value_text = "unknown, since too little is labelled" if row["value"] is None else f"{row['value']:.3f}"
    if row["value"] is None and row["figure"] == "null_rate":
        value_text = "unknown, since nothing was judged"
    bound = "at most" if setting.startswith("max") else "at least"
    return f"{row['figure']} is {value_text}, and {setting} asks for {bound} {row['asked']:g}"
