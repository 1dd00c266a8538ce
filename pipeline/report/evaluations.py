"""Summary tables of `evaluate` for the terminal and the report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.types import Rows

MAX_MEASURES = 6
"""Maximum number of measures side by side, so that a table fits 80 columns."""

DIGITS = 4

CORRECTED_TITLE = "Corrected by people's labels, with differences to the best (95 % intervals)"


def all_tenants(tables: Tables, name: str) -> pa.Table:
    """The rows of a table that summarize all tenants, without the column `tenant`.

    Args:
        tables: must contain the table.
        name: name of the table.
    """
    rows = tables.read(name)
    return rows.filter(pc.is_null(rows["tenant"])).drop_columns("tenant")


def summary_tables(tables: Tables) -> dict[str, pa.Table]:
    """Tables by title: scores of each system per part, and paired differences to the best by the first measure.

    Args:
        tables: must contain `evaluation` and `evaluation_pairs`.
    """
    means, pairs = (all_tenants(tables, name).to_pylist() for name in ("evaluation", "evaluation_pairs"))
    tables_by_title = {title: pa.Table.from_pylist(rows) for title, rows in _mean_tables(means)}
    for is_labelled in (False, True):
        part_rows = [row for row in pairs if (row["part"] == "labelled") is is_labelled]
        if part_rows:
            title = f"Differences in {part_rows[0]['measure']} to the best system (95 % intervals, Holm-corrected p)"
            tables_by_title[title] = pa.Table.from_pylist(list(_differences(part_rows, means)))
    corrected = corrected_figures(tables, "corrected_evaluation")
    return tables_by_title | ({CORRECTED_TITLE: corrected} if corrected.num_rows else {})


def corrected_figures(tables: Tables, name: str) -> pa.Table:
    """Figures by the judge's labels alone and corrected by people's labels, of each system and of its difference to the
    best one, for all tenants together; no rows without people's labels.

    Args:
        tables: may contain the table `name`.
        name: `corrected_evaluation` or `corrected_audit`.
    """
    rows: Rows = all_tenants(tables, name).to_pylist() if name in tables else []
    best = _best_systems([row for row in rows if row["other"] is None], ("measure",))
    corrected_rows = [
        {
            "figure": row["measure"],
            "system": row["system"] if row["other"] is None else f"{row['system']} − {row['other']}",
            "judge only": None if row["judge_only"] is None else round(row["judge_only"], DIGITS),
            "corrected": "unknown" if row["value"] is None else f"{row['value']:.{DIGITS}f}",
            "interval": row["reason"] or _format_interval(row, "" if row["other"] is None else "+"),
        }
        for row in rows
        if row["other"] is None or (row["value"] is not None and _has_best(row, best, ("measure",)))
    ]
    return pa.Table.from_pylist(corrected_rows)


def _best_systems(rows: Rows, scope: Sequence[str]) -> dict[tuple[Any, ...], str]:
    """The system with the highest known value in each scope; without one, the first by the judge's labels."""
    best = {}
    for row in sorted(rows, key=_score):
        best[tuple(row[column] for column in scope)] = row["system"]
    return best


def _score(row: Mapping[str, Any]) -> tuple[float, float]:
    value, by_judge = row["value"], row.get("judge_only")
    return -1.0 if value is None else value, -1.0 if by_judge is None else by_judge


def _has_best(row: Mapping[str, Any], best: Mapping[tuple[Any, ...], str], scope: Sequence[str]) -> bool:
    """Whether a difference is one to the best system of its scope."""
    return best.get(tuple(row[column] for column in scope)) in (row["system"], row["other"])


def log_summary_tables(tables: Tables) -> dict[str, pa.Table]:
    """Tables by title: online measures of the log overall and per experiment variant, and differences between variants.

    Args:
        tables: must contain `online` and `online_pairs`, and `online_verdicts` if a judge checked shown documents.
    """
    shares, pairs = (all_tenants(tables, name).to_pylist() for name in ("online", "online_pairs"))
    rows = [
        {"measure": row["measure"], "variant": row["variant"] or "(all)", "share": round(row["value"], DIGITS)}
        | {"interval": _format_interval(row, ""), "of": row["counted"]}
        for row in shares
    ]
    tables_by_title = (
        {f"Online measures of the log (95 % intervals over sessions){_judge_note(tables, shares)}": rows}
        if rows
        else {}
    )
    if pairs:
        tables_by_title["Differences between variants"] = [
            {"measure": row["measure"], "variant": row["variant"], "against": row["other"]}
            | {"interval": _format_interval(row, "+"), "p_holm": round(row["p_holm"], DIGITS)}
            for row in pairs
        ]
    return {title: pa.Table.from_pylist(rows) for title, rows in tables_by_title.items()}


def _judge_note(tables: Tables, shares: Rows) -> str:
    """The judge behind the `irrelevant` measures; empty without them."""
    if not any(row["measure"].startswith("irrelevant") for row in shares):
        return ""
    judge_ids = pc.unique(tables.read("online_verdicts", ["judge_id"])["judge_id"]).sort().to_pylist()
    weak = " (weak)" if any(judge_id.startswith("embedded-") for judge_id in judge_ids) else ""
    judge_names = dict.fromkeys(judge_id.split(":")[0] for judge_id in judge_ids)
    return f"; irrelevant according to {', '.join(judge_names)}{weak}"


def _format_interval(row: Mapping[str, Any], sign: str) -> str:
    """Format an interval; a dash if there is none, e.g. with a single cluster or session."""
    if row["low"] is None or row["high"] is None:
        return "–"
    return f"{row['low']:{sign}.{DIGITS}f} to {row['high']:{sign}.{DIGITS}f}"


def _mean_tables(means: Rows) -> Iterator[tuple[str, Rows]]:
    """Per part, a row per system with the first measures, and a row with their maximum."""
    parts = dict.fromkeys(row["part"] for row in means)
    for part in sorted(parts, key=lambda part: part == "labelled"):
        part_rows = [row for row in means if row["part"] == part]
        measures = list(dict.fromkeys(row["measure"] for row in part_rows))[:MAX_MEASURES]
        systems = dict.fromkeys(row["system"] for row in part_rows)
        rows = [_row(part_rows, system, measures, "value") for system in systems]
        yield f"{part}: {part_rows[0]['queries']:,} queries", [*rows, _row(part_rows, None, measures, "ceiling")]


def _row(rows: Rows, system: str | None, measures: list[str], column: str) -> dict[str, Any]:
    """A row with a column per measure; a system of None: the maximum that any system can reach."""
    values: Mapping[str, float] = {
        row["measure"]: round(row[column], DIGITS) for row in rows if system in (None, row["system"])
    }
    return {"system": system or "(maximum)"} | {measure: values[measure] for measure in measures}


def _differences(pairs: Rows, means: Rows) -> Iterator[dict[str, Any]]:
    """Yield the differences to the best system in the first measure, with intervals and p-values (Holm)."""
    scope = ("part", "measure")
    best = _best_systems(means, scope)
    for row in pairs:
        if row["measure"] == pairs[0]["measure"] and _has_best(row, best, scope):
            yield {
                "system": row["system"],
                "against": row["other"],
                "part": row["part"],
                "difference": round(row["difference"], DIGITS),
                "interval": _format_interval(row, "+"),
                "p_holm": round(row["p_holm"], DIGITS),
            }
