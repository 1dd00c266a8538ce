"""A plan as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from darklode.pipeline.scale.measured import Measured
from darklode.pipeline.scale.plan import Planned, Row

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


def shown(rows: Sequence[Planned]) -> list[Row]:
    """The stages, figures rounded to what can be said of them."""
    return [
        {
            "job": row.job,
            "stage": row.stage + (" !" if row.because else ""),
            "exponent": f"{row.exponent:.2f}" + (" ?" if row.assumed else ""),
            "CPU hours": short(row.hours),
            "95 %": f"{short(row.hours_low)}–{short(row.hours_high)}",
            "hours": short(row.wall_hours),
            "machines": str(row.machines),
            "GB memory": short(row.memory_gb) + ("" if row.flat else " ↑"),
            "GB written": short(row.storage_gb),
            "GPU hours": short(row.gpu_hours),
            "tokens": short(row.tokens),
            "money": short(row.money),
        }
        for row in rows
    ]


def told(total: Row) -> str:
    """All stages together, in a sentence or two."""
    money = f", {total['money']:,.0f} in money" if total["money"] else ""
    kept = f"; keeping it costs {total['storage_money_month']:,.0f} a month" if total["storage_money_month"] else ""
    span = f"{short(total['hours_low'])} to {short(total['hours_high'])}"
    return (
        f"Together {short(total['hours'])} processor hours ({span}), "
        f"{short(total['wall_hours'])} hours by the clock one stage after the other, {short(total['gpu_hours'])} GPU "
        f"hours, {short(total['tokens'])} tokens of the judge, {short(total['storage_gb'])} GB written{money}{kept}. "
        f"{total['machines_for_a_day']:,} machines would do the processors' part in a day."
    )


def notes(rows: Sequence[Planned], costs: Measured) -> Iterator[str]:
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
        most = max(row.beyond for row in rows)
        yield (
            f"Extrapolated from {costs.day} ({costs.machine}), up to {short(most)} times the largest size measured; "
            "the intervals say what the fits leave open, not what lies beyond them."
        )


def short(value: float) -> str:
    """A number in three digits: 0, 0.012, 4.1, 120, 3.1e+09."""
    if value and (value < 0.01 or value >= 1e6):
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 100 or not value else f"{value:.2g}"
