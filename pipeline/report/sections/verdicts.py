"""Report section of the judge's verdicts."""

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.types import Row
from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Histogram, HistogramBin, Whisker, histograms, stacked_bars, whiskers
from darklode.pipeline.report.drawing import AxisScale, Chart, Drawing, Facts, Rule, round_up_nicely
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number, share, short_id
from darklode.pipeline.report.probes import judge_probe
from darklode.pipeline.report.source import ReportSource, thresholds

MAX_BINS = 20
"""Approximate maximum number of bins; their bounds are round numbers."""
MIN_SPAN = 0.1
"""Minimum length of the probability axis; shorter ranges would exaggerate small differences."""
MAX_THRESHOLDS = 4
ERROR_CHARACTERS = 120

PROBABILITY_RANGE_SQL = "SELECT min(probability) AS low, max(probability) AS high FROM verdicts"

PROBABILITY_BINS_SQL = """
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

UNREADABLE_VERDICTS_SQL = f"""
    WITH error_counts AS (
        SELECT coalesce(left(error, {ERROR_CHARACTERS}), 'unknown error') AS error, count(*) AS verdicts FROM verdicts
        WHERE relevant IS NULL GROUP BY ALL
    ), totals AS (SELECT count(*) AS n, count(*) FILTER (relevant IS NULL) AS unreadable FROM verdicts)
    SELECT 'any' AS error, unreadable AS verdicts, unreadable / n AS share FROM totals WHERE n > 0 UNION ALL
    SELECT error, verdicts, verdicts / n FROM error_counts, totals
    ORDER BY verdicts DESC, error = 'any' DESC, error
"""


def _probability_bins(source: ReportSource) -> pa.Table:
    """Verdicts by probability, in bins adapted to their range; the last bin includes its upper bound."""
    (probability_range,) = source.tables.sql(PROBABILITY_RANGE_SQL).to_pylist()
    scale = AxisScale.including(probability_range["low"] or 0.0, probability_range["high"] or 0.0, MIN_SPAN)
    bins_per_unit = round(1 / round_up_nicely((scale.high - scale.low) / MAX_BINS))
    return source.tables.sql(PROBABILITY_BINS_SQL, [bins_per_unit, round(scale.high * bins_per_unit)])


def _probabilities(table: pa.Table, source: ReportSource) -> list[Chart]:
    """Histogram of verdicts by probability, with the thresholds as rules."""
    threshold_rows = thresholds(source).to_pylist()[:MAX_THRESHOLDS]
    threshold_values = [row["threshold"] for row in threshold_rows]
    lowest = pc.min(table["probability_from"]).as_py()
    highest = pc.max(table["probability_to"]).as_py()
    scale = AxisScale.including(min([lowest, *threshold_values]), max([highest, *threshold_values]), MIN_SPAN)
    bin_bounds = zip(table["probability_from"].to_pylist(), table["probability_to"].to_pylist(), strict=True)
    bins = [
        HistogramBin(scale.position_of(low), scale.span(low, high), f"{low:.2f} to {high:.2f}")
        for low, high in bin_bounds
    ]
    series = []
    for name, tone in (("relevant", "a"), ("not_relevant", "b"), ("unreadable", "c")):
        counts = table[name].to_pylist()
        if sum(counts):
            series.append(Histogram(name.replace("_", " "), tone, counts, "verdicts", number(sum(counts))))
    return [histograms(bins, series, scale.axis("probability of being relevant", 10), _rules(threshold_rows, scale))]


def _rules(threshold_rows: list[Row], scale: AxisScale) -> list[Rule]:
    return [
        Rule(
            scale.position_of(row["threshold"]),
            " ".join(["threshold", f"{row['threshold']:.3g}", row["tenant"] or ""]).strip(),
        )
        for row in threshold_rows
    ]


def _nulls(table: pa.Table, _source: ReportSource) -> list[Drawing]:
    totals, *errors = table.to_pylist()
    n_unreadable, percent = number(totals["verdicts"]), share(totals["share"], 2)
    facts = Facts([("unreadable", n_unreadable), ("share of all verdicts", percent)])
    if not errors:
        return [facts]
    return [facts, stacked_bars(table.slice(1), "error", {"verdicts": ("verdicts", "b")}, axis="verdicts", max_bars=10)]


def _judges(table: pa.Table, _source: ReportSource) -> list[Chart]:
    series = {"relevant": ("relevant", "a"), "not_relevant": ("not relevant", "b"), "unreadable": ("unreadable", "c")}
    used_series = {name: style for name, style in series.items() if any(table[name].to_pylist())}
    names = pa.array([short_id(judge_id) for judge_id in table["judge_id"].to_pylist()], pa.string())
    named = table.set_column(table.schema.get_field_index("judge_id"), "judge", names)
    return [stacked_bars(named, "judge", used_series, axis="pairs", max_bars=8)]


def _probes(table: pa.Table, _source: ReportSource) -> list[Chart]:
    """A chart per measure."""
    rows = [row for row in table.to_pylist() if row["rate"] is not None]
    measures = sorted({row["measure"] for row in rows})
    return [
        whiskers([_probe_whisker(row) for row in rows if row["measure"] == measure], measure, "b")
        for measure in measures
    ]


def _probe_whisker(row: Row) -> Whisker:
    return Whisker(row["kind"], row["rate"], row["low"], row["high"], f"{number(row['pairs'])} pairs")


SECTION = FigureSection(
    "judging",
    "Verdicts",
    (
        Figure(
            "judges",
            "Judges",
            "Verdicts per judge; the id contains model, prompt and settings. Contradicted: the label's own "
            "probability is on the other side of 0.5.",
            lambda source: statistics.judges(source.tables),
            _judges,
            ("verdicts",),
            wide=True,
            max_rows=20,
        ),
        Figure(
            "verdict-probabilities",
            "Probabilities of the verdicts",
            "Probability of being relevant, by verdict. The line is the threshold; each row has its own scale.",
            _probability_bins,
            _probabilities,
            ("verdicts",),
        ),
        Figure(
            "unreadable",
            "Unreadable verdicts",
            "Unreadable verdicts are null: neither positives nor negatives.",
            sql_source(UNREADABLE_VERDICTS_SQL),
            _nulls,
            ("verdicts",),
            max_rows=11,
        ),
        Figure(
            "judge-probe",
            "Probes of the judge",
            "Share of wrong replies to altered pairs of this run, with 95 % intervals: false positives where no pair "
            "is relevant, and flips where the label must not change. `noise` is the flip rate of unchanged "
            "pairs that were judged twice.",
            lambda source: judge_probe(source.tables),
            _probes,
            ("judge_probe",),
            wide=True,
            max_rows=20,
        ),
        Figure(
            "stopping",
            "Stopping of adaptive judging",
            "Pairs were judged in order of predicted relevance until the target recall was reached. The missed share "
            "of positives is estimated from randomly drawn pairs with a 95 % interval, overall and averaged per "
            "query.",
            lambda source: statistics.stopping(source.tables),
            needs=("stopping",),
            wide=True,
            max_rows=20,
        ),
    ),
    of_labels=True,
)
