"""Positives on the page."""

from collections import Counter

from darklode.pipeline.base.artifacts import Run
from helpers.report_runs import comma, figure, key_of, parsed, rendered, rows_of, text_of
from helpers.runs import read


def test_positives_per_query(chance_run: Run) -> None:
    queries, qrels = read(chance_run, "queries"), read(chance_run, "qrels")
    found = Counter(key_of(row) for row in qrels if row["relevance"])
    counts = Counter(min(31, found[key_of(row)]) for row in queries)
    root = parsed(rendered(chance_run))
    rows = rows_of(root, "positives-per-query")
    assert [(row["positives"], row["queries"]) for row in rows] == [
        (str(value), comma(counts[value])) for value in sorted(counts)
    ]
    assert f"{counts[0]} without any" in text_of(figure(root, "positives-per-query"))
    without = rows_of(root, "queries-without-positives") if counts[0] else []
    assert len(without) == min(10, counts[0])
