"""What each day of the log says about a query and a document."""

import duckdb
import pyarrow as pa

from pipeline.artifacts import FunnelStep, Output, Stage, Tables, Unit, digest, key_of
from pipeline.artifacts.tables import pieces
from pipeline.mining.days import digests
from pipeline.mining.people import people
from schemas.mining import ClickSettings, LogSettings
from schemas.tables import TABLES

EVIDENCE = Stage("click_evidence", 1, ("impressions", "click_model"), ("click_evidence",))

ROWS = 1 << 19

# Places that the click model has not seen count as the nearest one above; a click without a place as the first one.
EVIDENCE_OF_A_DAY = """
    WITH clicked AS (
        SELECT tenant, search_id, max(position) AS lowest FROM people WHERE clicked GROUP BY tenant, search_id
    ), placed AS (
        SELECT p.*, NOT $skipped OR p.clicked OR coalesce(p.position < c.lowest, false) AS exposed,
               coalesce(p.position, 1) AS place
        FROM people p LEFT JOIN clicked c USING (tenant, search_id)
    )
    SELECT p.tenant, CAST($day AS DATE) AS date, query_id, doc_id,
           count(*) FILTER (exposed) AS exposures,
           count(*) FILTER (clicked) AS clicks,
           count(*) FILTER (clicked AND coalesce(dwell_seconds >= $dwell, true)) AS satisfied,
           CAST(sum(CAST(expected AS DECIMAL(18, 9))) AS DOUBLE) AS expected
    FROM placed p
    ASOF LEFT JOIN click_model m ON p.tenant = m.tenant AND p.place >= m.position
    GROUP BY p.tenant, query_id, doc_id ORDER BY p.tenant, query_id, doc_id
"""

LOST = "SELECT count(*) FROM click_evidence ANTI JOIN present USING (tenant, query_id, doc_id)"


def evidence(tables: Tables, output: Output, click: ClickSettings, logs: LogSettings) -> None:
    """Sum up each day's impressions by query and document; a day whose impressions stand is not read again.

    Source: ScalingNote, 4.1 (clicked documents; documents exposed but not clicked).
    """
    days = tables.by_day("impressions", "timestamp")
    model = digest(tables.parts("click_model"))
    totals: list[dict[str, object]] = []
    contains: dict[str, list[str]] = {}
    for number, (day, mark) in enumerate(digests(days).items()):
        with output.unit(day, key_of(mark, model)) as unit:
            if not unit.done:
                _day(tables.of("impressions", days[day]), output, unit, day, click, logs)
                unit.facts["contains"] = _contains(output, unit, day)
        totals.append(unit.facts)
        output.progress(number + 1, len(days), day)
        contains[day] = unit.facts["contains"]
    output.facts["contains"] = contains
    output.count(_step(totals))


def _contains(output: Output, unit: Unit, day: str) -> list[str]:
    """Digests of earlier versions of the day's evidence to which this one only adds: nobody has to look for losses."""
    earlier = output.earlier("click_evidence")
    parts = earlier.by_day("click_evidence").get(day) if earlier else None
    if not earlier or not parts:
        return []
    with earlier.of("click_evidence", parts).connect() as connection:
        connection.register("present", output.written(unit, "click_evidence"))
        lost = connection.sql(LOST).fetchall()[0][0]
    known: list[str] = output.earlier_facts.get("contains", {}).get(day, [])
    return [] if lost else [*known, digests({day: parts})[day]]


def _day(tables: Tables, output: Output, unit: Unit, day: str, click: ClickSettings, logs: LogSettings) -> None:
    with tables.connect() as connection:
        bots = people(connection, logs)
        given = {"day": day, "skipped": click.negatives == "skipped", "dwell": click.min_dwell_seconds}
        for rows in pieces(connection, EVIDENCE_OF_A_DAY, given, ROWS):
            output.write("click_evidence", rows.cast(TABLES["click_evidence"].schema))
        unit.facts |= _counts(connection, tables.rows("impressions"), bots)
    if bots.num_rows:
        said = [f"{rows} impressions on {day}" for rows in bots["rows"].to_pylist()]
        columns = {name: bots[name] for name in ("tenant", "id", "reason")} | {"payload": pa.array(said)}
        output.reject("click_evidence", "impressions", columns)


def _counts(connection: duckdb.DuckDBPyConnection, rows: int, bots: pa.Table) -> dict[str, object]:
    shown, kept = connection.sql("SELECT (SELECT count(*) FROM shown), (SELECT count(*) FROM people)").fetchall()[0]
    dropped: dict[str, int] = {}
    for row in bots.to_pylist():
        dropped[row["reason"]] = dropped.get(row["reason"], 0) + row["rows"]
    return {"rows": rows, "repeats": rows - shown, "bots": dropped, "kept": kept}


def _step(totals: list[dict[str, object]]) -> FunnelStep:
    """The days' counts as one step. Units keep them as facts, so that days not read again count as well."""
    dropped: dict[str, int] = {}
    for facts in totals:
        reasons = {"repeated, or a click joined to its impression": facts["repeats"], **facts["bots"]}  # type: ignore[dict-item]
        for reason, rows in reasons.items():
            dropped[reason] = dropped.get(reason, 0) + int(rows)  # type: ignore[call-overload]
    sums = {name: sum(int(facts[name]) for facts in totals) for name in ("rows", "kept")}  # type: ignore[call-overload]
    left = {reason: rows for reason, rows in sorted(dropped.items()) if rows}
    return FunnelStep("click_evidence", "impressions", sums["rows"], "impressions", sums["kept"], left)
