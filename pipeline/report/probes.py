"""Rates of the judge's probes for card, report and command."""

from darklode.pipeline.report.statistic import Statistic

judge_probe = Statistic("""
    SELECT kind, measure, rate, low, high, noise, pairs, wrong, unreadable, unanswered, excluded, skipped
    FROM judge_probe ORDER BY rate DESC NULLS LAST, kind
""")
"""The table `judge_probe`, highest rate first."""

PROBE_NOTE = """\
Replies of the judge to altered pairs of this run: false positives where no pair is relevant, and flips where the label
must not change, with 95 % Wilson intervals. A rate with `unanswered` probes is unknown. `noise` is the flip rate of
unchanged pairs that were judged twice. These replies are in `judge_probes` only, never in labels."""
