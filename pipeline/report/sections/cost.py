"""What the run took: time by stage, tokens and money where they are known."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from darklode.pipeline.report.drawing import AxisScale, Bar, Chart, Row
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import UNKNOWN, duration
from darklode.pipeline.report.source import COMPLETE, ReportSource, valid_stages
from darklode.pipeline.retrieve.search import retrieval_of

STAGES = pa.schema(
    [("stage", pa.string()), ("state", pa.string()), ("seconds", pa.float64()), ("finished", pa.string())]
)

TOKENS = """
    SELECT judge_id, count(*) AS verdicts, count(prompt_tokens) AS counted,
           CAST(sum(prompt_tokens) AS BIGINT) AS prompt_tokens, CAST(sum(cached_tokens) AS BIGINT) AS cached_tokens,
           CAST(sum(completion_tokens) AS BIGINT) AS completion_tokens
    FROM {table} GROUP BY judge_id ORDER BY judge_id
"""

FORMULA = "embedded"
"""How the ids of judges begin that call no model: nobody is paid."""

COST = pa.schema(
    [
        ("what", pa.string()),
        ("asked", pa.int64()),
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
    return pa.Table.from_pylist(rows, STAGES)


def _seconds(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = table.to_pylist()
    seconds = [row["seconds"] for row in rows if row["seconds"] is not None]
    scale = AxisScale.up_to(max(seconds, default=0))
    drawn = [_stage(row, scale) for row in rows]
    return [Chart(drawn, scale.axis("seconds"), title=f"{duration(sum(seconds))} in all")]


def _stage(row: dict[str, Any], scale: AxisScale) -> Row:
    note = "" if row["state"] == COMPLETE else row["state"]
    if row["seconds"] is None:
        return Row(row["stage"], (), "–", note)
    took = duration(row["seconds"])
    return Row(row["stage"], [Bar(0, scale.position_of(row["seconds"]), "a", f"{row['stage']}: {took}")], took, note)


def _cost(source: ReportSource) -> pa.Table:
    members = source.tables.rows("panel_verdicts") > 0
    token_rows = source.tables.sql(TOKENS.format(table="panel_verdicts" if members else "verdicts")).to_pylist()
    judge = source.settings.judge
    prices = (0.0, 0.0) if members else judge.prices()
    rows = [_judge(row, *prices) for row in token_rows] + list(_encoders(source))
    return pa.Table.from_pylist(rows, COST)


def _judge(row: dict[str, Any], prompt_price: float, completion_price: float) -> dict[str, Any]:
    counted = row["counted"]
    priced = prompt_price + completion_price > 0 and counted
    spent = (row["prompt_tokens"] or 0) * prompt_price + (row["completion_tokens"] or 0) * completion_price
    tokens = {name: row[name] for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    cost = 0.0 if row["judge_id"].startswith(FORMULA) else spent / 1e6 if priced else None
    return {"what": row["judge_id"], "asked": row["verdicts"], "with_token_counts": counted, "cost": cost} | tokens


def _encoders(source: ReportSource) -> Iterator[dict[str, Any]]:
    """What the latest search embedded; where no price is set, what it cost is not known."""
    search = source.manifests.get("search")
    for name, work in (search.facts.get("embedding", {}) if search else {}).items():
        encoder = source.settings.encoders.get(name)
        priced = encoder is not None and encoder.price() > 0
        yield {"what": f"embedding for {name}", "asked": work["encoded"], "cost": work["cost"] if priced else None}


SECTION = FigureSection(
    "cost",
    "Time and cost",
    (
        Figure(
            "stages",
            "Time by stage",
            "Seconds that each stage took when it was last run, as its manifest says; work that was taken from an "
            "earlier run or from a cache took none.",
            _stages,
            _seconds,
        ),
        Figure(
            "cost",
            "Tokens and cost",
            "Of all verdicts of this run, whichever run paid for them, and of the texts that the latest search "
            "embedded; unknown is what nobody counted or gave a price for (prices are settings).",
            _cost,
            needs=("verdicts",),
            wide=True,
            max_rows=20,
            null=UNKNOWN,
        ),
        Figure(
            "retrieval",
            "What retrieval took",
            "Per retriever, over all tenants; texts whose vectors were in the cache were not encoded again.",
            lambda source: retrieval_of(source.manifests.get("search")).drop_columns(["cost"]),
            needs=("rankings",),
            wide=True,
        ),
    ),
)
