"""Report section on time, tokens and cost."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from darklode.pipeline.report.drawing import AxisScale, Bar, Chart, Row
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import UNKNOWN, duration
from darklode.pipeline.report.source import STATE_COMPLETE, ReportSource, valid_stages
from darklode.pipeline.retrieve.search import retrieval_of

STAGE_TIMES_SCHEMA = pa.schema(
    [("stage", pa.string()), ("state", pa.string()), ("seconds", pa.float64()), ("finished", pa.string())]
)

USAGE_BY_JUDGE_SQL = """
    SELECT judge_id, count(*) AS verdicts, count(prompt_tokens) AS counted,
           CAST(sum(prompt_tokens) AS BIGINT) AS prompt_tokens, CAST(sum(cached_tokens) AS BIGINT) AS cached_tokens,
           CAST(sum(completion_tokens) AS BIGINT) AS completion_tokens
    FROM {table} GROUP BY judge_id ORDER BY judge_id
"""

EMBEDDED_PREFIX = "embedded"
"""Prefix of the ids of judges that call no model and cost nothing."""

COST_SCHEMA = pa.schema(
    [
        ("model", pa.string()),
        ("requests", pa.int64()),
        ("with_token_counts", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("cost", pa.float64()),
    ]
)


def _stages(source: ReportSource) -> pa.Table:
    rows = []
    for stage, state in valid_stages(source).items():
        manifest = source.manifests.get(stage)
        timing = {"seconds": manifest.seconds, "finished": manifest.finished or None} if manifest else {}
        rows.append({"stage": stage, "state": state, **timing})
    return pa.Table.from_pylist(rows, STAGE_TIMES_SCHEMA)


def _seconds(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = table.to_pylist()
    seconds = [row["seconds"] for row in rows if row["seconds"] is not None]
    scale = AxisScale.up_to(max(seconds, default=0))
    drawn = [_stage(row, scale) for row in rows]
    return [Chart(drawn, scale.axis("seconds"), title=f"{duration(sum(seconds))} in total")]


def _stage(row: dict[str, Any], scale: AxisScale) -> Row:
    note = "" if row["state"] == STATE_COMPLETE else row["state"]
    if row["seconds"] is None:
        return Row(row["stage"], (), "–", note)
    time = duration(row["seconds"])
    return Row(row["stage"], [Bar(0, scale.position_of(row["seconds"]), "a", f"{row['stage']}: {time}")], time, note)


def _cost(source: ReportSource) -> pa.Table:
    members = source.tables.rows("panel_verdicts") > 0
    token_rows = source.tables.sql(
        USAGE_BY_JUDGE_SQL.format(table="panel_verdicts" if members else "verdicts")
    ).to_pylist()
    judge = source.settings.judge
    prices = (0.0, 0.0) if members else judge.prices()
    rows = [_judge(row, *prices) for row in token_rows] + list(_encoders(source))
    return pa.Table.from_pylist(rows, COST_SCHEMA)


def _judge(row: dict[str, Any], prompt_price: float, completion_price: float) -> dict[str, Any]:
    n_counted = row["counted"]
    has_price = prompt_price + completion_price > 0 and n_counted
    spent = (row["prompt_tokens"] or 0) * prompt_price + (row["completion_tokens"] or 0) * completion_price
    tokens = {name: row[name] for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    cost = 0.0 if row["judge_id"].startswith(EMBEDDED_PREFIX) else spent / 1e6 if has_price else None
    return {
        "model": row["judge_id"],
        "requests": row["verdicts"],
        "with_token_counts": n_counted,
        "cost": cost,
    } | tokens


def _encoders(source: ReportSource) -> Iterator[dict[str, Any]]:
    """Texts embedded by the latest search, with their cost if a price is set."""
    search = source.manifests.get("search")
    for name, work in (search.facts.get("embedding", {}) if search else {}).items():
        encoder = source.settings.encoders.get(name)
        has_price = encoder is not None and encoder.price() > 0
        yield {"model": f"{name} (embedding)", "requests": work["encoded"], "cost": work["cost"] if has_price else None}


SECTION = FigureSection(
    "cost",
    "Time and cost",
    (
        Figure(
            "stages",
            "Time per stage",
            "Duration of each stage's last run. Cached results take no time.",
            _stages,
            _seconds,
        ),
        Figure(
            "cost",
            "Tokens and cost",
            "All verdicts of this run, including cached ones paid for by earlier runs, and the texts embedded by the "
            "latest search. Unknown: no token counts, or no price in the settings.",
            _cost,
            needs=("verdicts",),
            wide=True,
            max_rows=20,
            null=UNKNOWN,
        ),
        Figure(
            "retrieval",
            "Retrieval",
            "Per retriever, over all tenants. Texts with cached vectors are not encoded again.",
            lambda source: retrieval_of(source.manifests.get("search")).drop_columns(["cost"]),
            needs=("rankings",),
            wide=True,
        ),
    ),
)
