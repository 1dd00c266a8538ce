"""What a search log gave: evidence by day, pairs by source, days that are held, associations and tiers."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Whisker, evidence, stacked_bars, whiskers
from darklode.pipeline.report.drawing import Chart
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

DAYS = 120
BY_TENANT = """
    WITH counted AS (
        SELECT tenant, 'queries' AS kind, count(*) AS n FROM log_queries GROUP BY tenant UNION ALL
        SELECT tenant, 'associations', count(*) FROM associations GROUP BY tenant UNION ALL
        SELECT tenant, 'pairs', count(*) FROM mined_pairs GROUP BY tenant UNION ALL
        SELECT tenant, 'triplets', count(*) FROM triplets GROUP BY tenant
    )
    SELECT tenant, CAST(coalesce(sum(n) FILTER (kind = 'queries'), 0) AS BIGINT) AS queries,
           CAST(coalesce(sum(n) FILTER (kind = 'associations'), 0) AS BIGINT) AS associations,
           CAST(coalesce(sum(n) FILTER (kind = 'pairs'), 0) AS BIGINT) AS pairs,
           CAST(coalesce(sum(n) FILTER (kind = 'triplets'), 0) AS BIGINT) AS triplets
    FROM counted GROUP BY tenant ORDER BY queries DESC, tenant
"""


def _by_source(table: pa.Table, _source: ReportSource) -> list[Chart]:
    summed = table.group_by(["source", "split"]).aggregate([("triplets", "sum")]).to_pylist()
    names = sorted({row["source"] for row in summed})
    counts = {(row["source"], row["split"]): row["triplets_sum"] for row in summed}
    columns = {split: [counts.get((name, split), 0) for name in names] for split in ("train", "validation")}
    series = {"train": ("train", "a"), "validation": ("validation", "b")}
    return [stacked_bars(pa.table({"source": names} | columns), "source", series, axis="triplets", shares=True)]


SHARES = {"relevant": ("positives", "a"), "of_negatives": ("negatives", "b")}


def _confirmed_charts(table: pa.Table, _source: ReportSource) -> list[Chart]:
    several = len(pc.unique(table["judge_id"])) > 1
    rows = sorted(table.to_pylist(), key=lambda row: (row["source"], row["judge_id"]))
    bars = [_share(row, name, several=several) for row in rows for name in SHARES if row[name] is not None]
    return [whiskers(bars, "", "a")] if bars else []


def _share(row: dict[str, Any], name: str, *, several: bool) -> Whisker:
    middle, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    label, tone = SHARES[name]
    group = f"{row['source']}, {row['judge_id']}" if several else row["source"]
    return Whisker(f"{row['tier']}, {label}", middle, low, high, f"{number(row[label])} looked at", group, tone)


SECTION = FigureSection(
    "mining",
    "The search log",
    (
        Figure(
            "nights",
            "Evidence by day",
            "What each day of the log held, bots left out, and the pairs that it was the first to give; each row has "
            "its own height.",
            lambda source: statistics.nights(source.tables),
            evidence,
            ("click_evidence", "log_queries", "mined_pairs"),
            wide=True,
            max_rows=DAYS,
            last=True,
        ),
        Figure(
            "log-days",
            "Days held, discarded, accepted or missing",
            "What is implausible about them, held against admitted days before (docs/mining.md). Nothing is made of a "
            "held or a discarded day.",
            lambda source: statistics.days(source.tables),
            needs=("log_days",),
            wide=True,
            max_rows=DAYS,
        ),
        Figure(
            "mined-triplets",
            "Triplets by source",
            "Own evidence is a query's own clicks and ranked documents; lent evidence came from an associated query.",
            lambda source: statistics.triplet_tiers(source.tables),
            _by_source,
            ("mined_pairs", "triplets"),
        ),
        Figure(
            "associations",
            "Associations",
            "Queries that borrow, and from how many others; those beyond the cap "
            "(associate.max_lenders_per_query) lend nothing.",
            lambda source: statistics.lenders(source.tables, source.settings.associate.max_lenders_per_query),
            needs=("associations",),
        ),
        Figure(
            "mined-tenants",
            "By tenant",
            "Distinct queries of the log, associations, pairs and triplets; tenants never mix.",
            sql_source(BY_TENANT),
            needs=("log_queries", "associations", "mined_pairs", "triplets"),
            max_rows=20,
        ),
        Figure(
            "confirmed",
            "Relevant to the judge",
            "Of the positives and the negatives that were looked at, the shares that the judge finds relevant, with "
            "95 % intervals. A tier holds the smaller ones, so large stands for its source. Where the negatives are "
            "relevant as often as the positives, a source is noise; an embedded judge is weak.",
            lambda source: statistics.confirmed(source.tables),
            _confirmed_charts,
            ("mined_verdicts",),
            wide=True,
            max_rows=36,
        ),
        Figure(
            "tiers",
            "Tiers",
            "As in ScalingNote's Table 1; a larger tier holds the smaller ones.",
            lambda source: statistics.tiers(source.tables),
            needs=("mined_pairs", "triplets", "documents"),
            wide=True,
        ),
    ),
)
