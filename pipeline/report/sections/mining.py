"""Report section of a mined search log."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Whisker, evidence, stacked_bars, whiskers
from darklode.pipeline.report.drawing import Chart
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number, short_id
from darklode.pipeline.report.source import ReportSource

MAX_DAYS = 120
ROWS_BY_TENANT_SQL = """
    WITH row_counts AS (
        SELECT tenant, 'queries' AS kind, count(*) AS n FROM log_queries GROUP BY tenant UNION ALL
        SELECT tenant, 'associations', count(*) FROM associations GROUP BY tenant UNION ALL
        SELECT tenant, 'pairs', count(*) FROM mined_pairs GROUP BY tenant UNION ALL
        SELECT tenant, 'triplets', count(*) FROM triplets GROUP BY tenant
    )
    SELECT tenant, CAST(coalesce(sum(n) FILTER (kind = 'queries'), 0) AS BIGINT) AS queries,
           CAST(coalesce(sum(n) FILTER (kind = 'associations'), 0) AS BIGINT) AS associations,
           CAST(coalesce(sum(n) FILTER (kind = 'pairs'), 0) AS BIGINT) AS pairs,
           CAST(coalesce(sum(n) FILTER (kind = 'triplets'), 0) AS BIGINT) AS triplets
    FROM row_counts GROUP BY tenant ORDER BY queries DESC, tenant
"""


def _by_source(table: pa.Table, _source: ReportSource) -> list[Chart]:
    summed = table.group_by(["source", "split"]).aggregate([("triplets", "sum")]).to_pylist()
    names = sorted({row["source"] for row in summed})
    counts = {(row["source"], row["split"]): row["triplets_sum"] for row in summed}
    columns = {split: [counts.get((name, split), 0) for name in names] for split in ("train", "validation")}
    series = {"train": ("train", "a"), "validation": ("validation", "b")}
    return [stacked_bars(pa.table({"source": names} | columns), "source", series, axis="triplets", shares=True)]


VERIFIED_SHARES = {"relevant": ("positives", "a"), "of_negatives": ("negatives", "b")}


def _confirmed_charts(table: pa.Table, _source: ReportSource) -> list[Chart]:
    has_several_judges = len(pc.unique(table["judge_id"])) > 1
    rows = sorted(table.to_pylist(), key=lambda row: (row["source"], row["judge_id"]))
    bars = [
        _share(row, name, with_judge=has_several_judges)
        for row in rows
        for name in VERIFIED_SHARES
        if row[name] is not None
    ]
    return [whiskers(bars, "", "a")] if bars else []


def _share(row: dict[str, Any], name: str, *, with_judge: bool) -> Whisker:
    middle, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    label, tone = VERIFIED_SHARES[name]
    group = f"{row['source']}, {short_id(row['judge_id'])}" if with_judge else row["source"]
    return Whisker(f"{row['tier']}, {label}", middle, low, high, f"{number(row[label])} checked", group, tone)


SECTION = FigureSection(
    "mining",
    "Search log",
    (
        Figure(
            "nights",
            "Evidence per day",
            "Impressions, clicks and queries per day of the log, without bots, and new pairs; each row has its own "
            "scale.",
            lambda source: statistics.nights(source.tables),
            evidence,
            ("click_evidence", "log_queries", "mined_pairs"),
            wide=True,
            max_rows=MAX_DAYS,
            last=True,
        ),
        Figure(
            "log-days",
            "Held, discarded, accepted and missing days",
            "Days that deviate from earlier admitted days, with the reasons (docs/guides/mine.md). Held and discarded "
            "days are not used.",
            lambda source: statistics.days(source.tables),
            needs=("log_days",),
            wide=True,
            max_rows=MAX_DAYS,
        ),
        Figure(
            "mined-triplets",
            "Triplets by source",
            "One-hop evidence comes from the query's own clicks and ranked documents, multi-hop evidence from an "
            "associated query.",
            lambda source: statistics.triplet_tiers(source.tables),
            _by_source,
            ("mined_pairs", "triplets"),
        ),
        Figure(
            "associations",
            "Associations",
            "Queries with associated queries, and how many; associations beyond "
            "associate.max_lenders_per_query are not used.",
            lambda source: statistics.association_counts(
                source.tables, source.settings.associate.max_lenders_per_query
            ),
            needs=("associations",),
        ),
        Figure(
            "mined-tenants",
            "By tenant",
            "Distinct queries of the log, associations, pairs and triplets.",
            sql_source(ROWS_BY_TENANT_SQL),
            needs=("log_queries", "associations", "mined_pairs", "triplets"),
            max_rows=20,
        ),
        Figure(
            "confirmed",
            "Share that the judge calls relevant",
            "Of the checked positives and negatives, with 95 % intervals. Each tier contains the smaller ones; large "
            "contains the whole source. If negatives are relevant as often as positives, the source is noise. An "
            "embedded judge is weak.",
            lambda source: statistics.verified_shares(source.tables),
            _confirmed_charts,
            ("mined_verdicts",),
            wide=True,
            max_rows=36,
        ),
        Figure(
            "tiers",
            "Tiers",
            "Statistics as in ScalingNote, Table 1. Each tier contains the smaller ones.",
            lambda source: statistics.tiers(source.tables),
            needs=("mined_pairs", "triplets", "documents"),
            wide=True,
        ),
    ),
)
