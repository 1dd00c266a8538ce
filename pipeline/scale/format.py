"""Formats a scaling plan for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from darklode.pipeline.base.types import Row
from darklode.pipeline.scale.measurements import Measured
from darklode.pipeline.scale.plan import PlannedStage

COLUMNS = {
    "job": False,
    "stage": False,
    "exponent": True,
    "CPU hours": True,
    "95 %": True,
    "hours": True,
    "machines": True,
    "GB memory": True,
    "GB written": True,
    "GPU hours": True,
    "tokens": True,
    "money": True,
}
"""Columns of the printed table, and whether they are numeric."""


def format_rows(rows: Sequence[PlannedStage]) -> list[Row]:
    """Rows of the printed table; marks: ! does not scale, ? assumed exponent, ↑ growing memory."""
    return [
        {
            "job": row.job,
            "stage": row.stage + (" !" if row.limitation else ""),
            "exponent": f"{row.exponent:.2f}" + (" ?" if row.exponent_assumed else ""),
            "CPU hours": format_short(row.cpu_hours),
            "95 %": f"{format_short(row.cpu_hours_low)}–{format_short(row.cpu_hours_high)}",
            "hours": format_short(row.wall_hours),
            "machines": str(row.machines),
            "GB memory": format_short(row.memory_gb) + ("" if row.memory_constant else " ↑"),
            "GB written": format_short(row.storage_gb),
            "GPU hours": format_short(row.gpu_hours),
            "tokens": format_short(row.tokens),
            "money": format_short(row.money),
        }
        for row in rows
    ]


def format_total(total: Row) -> str:
    """Totals over all stages."""
    money = f", cost {total['money']:,.0f}" if total["money"] else ""
    storage = f"; storage costs {total['storage_money_month']:,.0f} a month" if total["storage_money_month"] else ""
    interval = f"{format_short(total['cpu_hours_low'])} to {format_short(total['cpu_hours_high'])}"
    return (
        f"Total: {format_short(total['cpu_hours'])} CPU hours ({interval}), "
        f"{format_short(total['wall_hours'])} wall-clock hours if stages run one after the other, "
        f"{format_short(total['gpu_hours'])} GPU hours, {format_short(total['tokens'])} judge tokens, "
        f"{format_short(total['storage_gb'])} GB written{money}{storage}. "
        f"{total['machines_for_a_day']:,} machines would complete the CPU work in one day."
    )


def notes(rows: Sequence[PlannedStage], costs: Measured) -> Iterator[str]:
    """Sentences on stages that do not scale, assumptions, and the range of extrapolation."""
    for row in rows:
        if row.limitation:
            yield f"{row.job} {row.stage} does not scale (!): {row.limitation}."
    assumed = [f"{row.job} {row.stage}" for row in rows if row.exponent_assumed]
    if assumed:
        yield f"Exponent could not be fitted and is assumed to be 1 (?): {', '.join(assumed)}."
    growing = [f"{row.job} {row.stage}" for row in rows if not row.memory_constant]
    if growing:
        yield f"Memory was still growing at the largest measured size (↑): {', '.join(growing)}."
    if rows:
        factor = format_short(max(row.extrapolation for row in rows))
        yield (
            f"Extrapolated from measurements of {costs.day} ({costs.machine}), up to {factor} times the largest "
            "measured size. The intervals cover the uncertainty of the fit, not changes beyond the measured range."
        )


def format_short(value: float) -> str:
    """Format with two or three significant digits: 0, 0.012, 4.1, 120, 3.1e+09."""
    if value and (value < 0.01 or value >= 1e6):
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 99.5 or not value else f"{value:.2g}"
