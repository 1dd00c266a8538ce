"""What `evaluate` measured, as small tables: the screen and the report show them."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.types import Rows

COLUMNS = 6
"""Measures side by side: with a system's name they fit a screen of 80 columns."""

DIGITS = 4


def summary_tables(tables: Tables) -> dict[str, pa.Table]:
    """Tables by their titles: what each system reaches, part by part, and the differences by the first measure.

    Args:
        tables: holds `evaluation` and `evaluation_pairs`.
    """
    means, pairs = (_all_tenants(tables, name) for name in ("evaluation", "evaluation_pairs"))
    tables_by_title = {title: pa.Table.from_pylist(rows) for title, rows in _mean_tables(means)}
    for is_labelled in (False, True):
        part_rows = [row for row in pairs if (row["part"] == "labelled") is is_labelled]
        if part_rows:
            title = f"Differences by {part_rows[0]['measure']}: p_holm is two-sided, intervals 95 %"
            tables_by_title[title] = pa.Table.from_pylist(list(_differences(part_rows)))
    return tables_by_title


def log_summary_tables(tables: Tables) -> dict[str, pa.Table]:
    """Tables by their titles: what the log says of all that was searched and of each arm, and the arms' differences.

    Args:
        tables: holds `online`, `online_pairs` and, where the judge looked at what was shown, `online_verdicts`.
    """
    shares, pairs = (_all_tenants(tables, name) for name in ("online", "online_pairs"))
    rows = [
        {"measure": row["measure"], "arm": row["arm"] or "(all)", "share": round(row["value"], DIGITS)}
        | {"interval": _format_interval(row, ""), "of": row["counted"]}
        for row in shares
    ]
    tables_by_title = (
        {f"The log itself: shares, with 95 % intervals over sessions{_by_whom(tables, shares)}": rows} if rows else {}
    )
    if pairs:
        tables_by_title["The arms' differences"] = [
            {"measure": row["measure"], "arm": row["arm"], "against": row["other"]}
            | {"interval": _format_interval(row, "+"), "p_holm": round(row["p_holm"], DIGITS)}
            for row in pairs
        ]
    return {title: pa.Table.from_pylist(rows) for title, rows in tables_by_title.items()}


def _by_whom(tables: Tables, shares: Rows) -> str:
    """Whose word it is that a document is irrelevant; nothing where nobody looked."""
    if not any(row["measure"].startswith("irrelevant") for row in shares):
        return ""
    judges = pc.unique(tables.read("online_verdicts", ["judge_id"])["judge_id"]).sort().to_pylist()
    weak = ", a weak judge" if any(judge.startswith("embedded-") for judge in judges) else ""
    names = dict.fromkeys(judge.split(":")[0] for judge in judges)
    return f"; irrelevant by {', '.join(names)}{weak}"


def _format_interval(row: Mapping[str, Any], sign: str) -> str:
    """An interval; a dash where there is none, as of one cluster or session."""
    if row["low"] is None or row["high"] is None:
        return "–"
    return f"{row['low']:{sign}.{DIGITS}f} to {row['high']:{sign}.{DIGITS}f}"


def _all_tenants(tables: Tables, name: str) -> Rows:
    return [row for row in tables.read(name).to_pylist() if row["tenant"] is None]


def _mean_tables(means: Rows) -> Iterator[tuple[str, Rows]]:
    """For each part a row per system, the first measures side by side, and the most that can be reached."""
    parts = dict.fromkeys(row["part"] for row in means)
    for part in sorted(parts, key=lambda part: part == "labelled"):
        part_rows = [row for row in means if row["part"] == part]
        shown = list(dict.fromkeys(row["measure"] for row in part_rows))[:COLUMNS]
        rows = [_row(part_rows, system, shown, "value") for system in dict.fromkeys(row["system"] for row in part_rows)]
        yield f"{part}: {part_rows[0]['queries']:,} queries", [*rows, _row(part_rows, None, shown, "ceiling")]


def _row(rows: Rows, system: str | None, measures: list[str], column: str) -> dict[str, Any]:
    values: Mapping[str, float] = {
        row["measure"]: round(row[column], DIGITS) for row in rows if system in (None, row["system"])
    }
    return {"system": system or "(at most)"} | {measure: values[measure] for measure in measures}


def _differences(pairs: Rows) -> Iterator[dict[str, Any]]:
    for row in pairs:
        if row["measure"] == pairs[0]["measure"]:
            yield {
                "system": row["system"],
                "against": row["other"],
                "part": row["part"],
                "difference": round(row["difference"], DIGITS),
                "interval": _format_interval(row, "+"),
                "p_holm": round(row["p_holm"], DIGITS),
            }
