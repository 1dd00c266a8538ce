"""What the judge said: verdicts, their probabilities, and those that could not be read."""

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Histogram, HistogramBin, histograms, stacked_bars
from darklode.pipeline.report.drawing import AxisScale, Chart, Drawing, Facts, Rule, round_up_nicely
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number, share
from darklode.pipeline.report.source import ReportSource, thresholds

BINS = 20
"""About the most; their ends are round numbers."""
LEAST_SPAN = 0.1
MOST_THRESHOLDS = 4
ERROR = 120

ENDS = "SELECT min(probability) AS low, max(probability) AS high FROM verdicts"

PROBABILITIES = """
    WITH binned AS (
        SELECT CAST(floor(probability * $1) AS INTEGER) AS floored,
               CASE WHEN floored >= $2 THEN floored - 1 ELSE floored END AS bin, relevant
        FROM verdicts WHERE probability IS NOT NULL
    )
    SELECT bin / $1 AS probability_from, (bin + 1) / $1 AS probability_to,
           count(*) FILTER (relevant) AS relevant, count(*) FILTER (NOT relevant) AS not_relevant,
           count(*) FILTER (relevant IS NULL) AS unreadable
    FROM binned GROUP BY bin ORDER BY bin
"""

NULLS = f"""
    WITH nulls AS (
        SELECT coalesce(left(error, {ERROR}), 'no error named') AS error, count(*) AS verdicts FROM verdicts
        WHERE relevant IS NULL GROUP BY ALL
    ), everything AS (SELECT count(*) AS n, count(*) FILTER (relevant IS NULL) AS unreadable FROM verdicts)
    SELECT 'any' AS error, unreadable AS verdicts, unreadable / n AS share FROM everything WHERE n > 0 UNION ALL
    SELECT error, verdicts, verdicts / n FROM nulls, everything
    ORDER BY verdicts DESC, error = 'any' DESC, error
"""


def _probability_bins(source: ReportSource) -> pa.Table:
    """Verdicts by probability, in bins as fine as their range allows; that of the highest end holds it, too."""
    (ends,) = source.tables.sql(ENDS).to_pylist()
    scale = AxisScale.including(ends["low"] or 0.0, ends["high"] or 0.0, LEAST_SPAN)
    each = round(1 / round_up_nicely((scale.high - scale.low) / BINS))
    return source.tables.sql(PROBABILITIES, [each, round(scale.high * each)])


def _probabilities(table: pa.Table, source: ReportSource) -> list[Chart]:
    drawn = [row["threshold"] for row in thresholds(source).to_pylist()[:MOST_THRESHOLDS]]
    lowest, highest = pc.min(table["probability_from"]).as_py(), pc.max(table["probability_to"]).as_py()
    scale = AxisScale.including(min([lowest, *drawn]), max([highest, *drawn]), LEAST_SPAN)
    ends = zip(table["probability_from"].to_pylist(), table["probability_to"].to_pylist(), strict=True)
    bins = [
        HistogramBin(scale.position_of(low), scale.span(low, high), f"{low:.2f} to {high:.2f}") for low, high in ends
    ]
    series = []
    for name, tone in (("relevant", "a"), ("not_relevant", "b"), ("unreadable", "c")):
        counts = table[name].to_pylist()
        if sum(counts):
            series.append(Histogram(name.replace("_", " "), tone, counts, "verdicts", number(sum(counts))))
    return [histograms(bins, series, scale.axis("probability of being relevant", 10), _rules(source, scale))]


def _rules(source: ReportSource, scale: AxisScale) -> list[Rule]:
    threshold_rows = thresholds(source).to_pylist()[:MOST_THRESHOLDS]
    return [
        Rule(
            scale.position_of(row["threshold"]),
            " ".join(["threshold", f"{row['threshold']:.3g}", row["tenant"] or ""]).strip(),
        )
        for row in threshold_rows
    ]


def _nulls(table: pa.Table, _source: ReportSource) -> list[Drawing]:
    everything, *errors = table.to_pylist()
    facts = Facts([("unreadable", number(everything["verdicts"])), ("of all verdicts", share(everything["share"], 2))])
    if not errors:
        return [facts]
    return [facts, stacked_bars(table.slice(1), "error", {"verdicts": ("verdicts", "b")}, axis="verdicts", max_bars=10)]


def _judges(table: pa.Table, _source: ReportSource) -> list[Chart]:
    series = {"relevant": ("relevant", "a"), "not_relevant": ("not relevant", "b"), "unreadable": ("unreadable", "c")}
    label_by_column = {name: how for name, how in series.items() if any(table[name].to_pylist())}
    return [stacked_bars(table, "judge_id", label_by_column, axis="pairs", max_bars=8)]


SECTION = FigureSection(
    "judging",
    "Verdicts",
    (
        Figure(
            "judges",
            "Judges",
            "What each judge said of the pairs; its id names the model, prompt and settings behind it. Contradicted "
            "are labels on another side of one half than their own probability, which decided.",
            lambda source: statistics.judges(source.tables),
            _judges,
            ("verdicts",),
            wide=True,
            max_rows=20,
        ),
        Figure(
            "verdict-probabilities",
            "Probabilities of the verdicts",
            "How sure the judge was, by what it said; the line is the threshold from which on a pair is relevant, and "
            "each row has its own height.",
            _probability_bins,
            _probabilities,
            ("verdicts",),
        ),
        Figure(
            "unreadable",
            "Verdicts that could not be read",
            "Their number and share of all verdicts, and by error; they are null: neither positives nor negatives.",
            sql_source(NULLS),
            _nulls,
            ("verdicts",),
            max_rows=11,
        ),
        Figure(
            "stopping",
            "Where judging stopped",
            "The likeliest pairs were judged first until the recall asked for was reached; what was missed is "
            "estimated from pairs drawn at random, with its 95 % interval: of all positives, and of a query's, in "
            "the mean over queries.",
            lambda source: statistics.stopping(source.tables),
            needs=("stopping",),
            wide=True,
            max_rows=20,
        ),
    ),
    of_labels=True,
)
