"""A plan as a person reads it."""

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
"""Of the table on the screen, and which hold numbers."""


def format_rows(rows: Sequence[PlannedStage]) -> list[Row]:
    """The stages, figures rounded to what can be said of them."""
    return [
        {
            "job": row.job,
            "stage": row.stage + (" !" if row.because else ""),
            "exponent": f"{row.exponent:.2f}" + (" ?" if row.assumed else ""),
            "CPU hours": format_short(row.hours),
            "95 %": f"{format_short(row.hours_low)}–{format_short(row.hours_high)}",
            "hours": format_short(row.wall_hours),
            "machines": str(row.machines),
            "GB memory": format_short(row.memory_gb) + ("" if row.flat else " ↑"),
            "GB written": format_short(row.storage_gb),
            "GPU hours": format_short(row.gpu_hours),
            "tokens": format_short(row.tokens),
            "money": format_short(row.money),
        }
        for row in rows
    ]


def format_total(total: Row) -> str:
    """All stages together, in a sentence or two."""
    money = f", {total['money']:,.0f} in money" if total["money"] else ""
    storage_text = (
        f"; keeping it costs {total['storage_money_month']:,.0f} a month" if total["storage_money_month"] else ""
    )
    span = f"{format_short(total['hours_low'])} to {format_short(total['hours_high'])}"
    return (
        f"Together {format_short(total['hours'])} processor hours ({span}), "
        f"{format_short(total['wall_hours'])} hours by the clock one stage after the other, "
        f"{format_short(total['gpu_hours'])} GPU hours, {format_short(total['tokens'])} tokens of the judge, "
        f"{format_short(total['storage_gb'])} GB "
        f"written{money}{storage_text}. "
        f"{total['machines_for_a_day']:,} machines would do the processors' part in a day."
    )


def notes(rows: Sequence[PlannedStage], costs: Measured) -> Iterator[str]:
    """What does not scale and why, and how far beyond what was measured this is."""
    for row in rows:
        if row.because:
            yield f"{row.job} {row.stage} does not scale: {row.because}."
    taken = [f"{row.job} {row.stage}" for row in rows if row.assumed]
    if taken:
        yield f"The exponent stayed open at the sizes measured, and 1 was taken (?): {', '.join(taken)}."
    growing = [f"{row.job} {row.stage}" for row in rows if not row.flat]
    if growing:
        yield f"Memory was still growing at the largest size measured (↑): {', '.join(growing)}."
    if rows:
        max_beyond = max(row.beyond for row in rows)
        yield (
            f"Extrapolated from {costs.day} ({costs.machine}), up to {format_short(max_beyond)} times the largest size "
            "measured; the intervals say what the fits leave open, not what lies beyond them."
        )


def format_short(value: float) -> str:
    """A number in three digits: 0, 0.012, 4.1, 120, 3.1e+09."""
    if value and (value < 0.01 or value >= 1e6):
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 100 or not value else f"{value:.2g}"
