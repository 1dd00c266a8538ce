"""Per-query ranking measures, computed by ir_measures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Doubles as Floats

QUERIES_AT_ONCE = 128
"""Queries per block: ir_measures needs Python objects, some tens of MB for lists of a thousand entries."""


def parse_measures(names: Sequence[str]) -> list[Any]:
    """Parse measures by ir_measures' names, such as `nDCG@10`.

    Raises:
        SettingsError: the measure is unknown, or has no cutoff.
    """
    import ir_measures  # it takes long to import

    measures = []
    for name in names:
        try:
            measures.append(ir_measures.parse_measure(name))
        except (NameError, ValueError, KeyError, SyntaxError) as error:
            raise SettingsError(f"evaluate.measures: ir_measures has no {name!r}; try nDCG@10 or R@100") from error
        if "cutoff" not in measures[-1].params:
            raise SettingsError(f"evaluate.measures: {name} has no depth; name one, as in {name}@10")
    return measures


def depth_of(names: Sequence[str]) -> int:
    """Ranking depth needed for all these measures."""
    return max(int(measure["cutoff"]) for measure in parse_measures(names))


def compute_measures(
    rankings: Iterable[pa.Table], labels: pa.Table, queries: Sequence[str], measures: Sequence[str]
) -> Floats:
    """Value of each measure for each query, shape (n_queries, n_measures); a query without a ranking gets the worst.

    Only ranks count, so ties in scores do not matter. Texts with an uncertain label are removed from the rankings
    (condensed lists, Sakai 2007); texts without a label count as not relevant.

    Args:
        rankings: tables with query_id, rank and text_id of one tenant and system; each query is in one table only, and
            its rows are contiguous. Other queries are ignored.
        labels: query_id, text_id and relevance (0: judged not relevant, null: uncertain) of the same tenant.
        queries: distinct ids, each with at least one label.
        measures: names for `parse_measures`.

    Source: ScalingNote, 4.1.2 (`Success@K` is its R@K); DevRev-Search, 4 (nDCG@10, R@10).
    """
    import ir_measures

    parsed_measures = parse_measures(measures)
    columns = {measure: number for number, measure in enumerate(parsed_measures)}
    rows = {query: number for number, query in enumerate(queries)}
    values = np.zeros((len(rows), len(parsed_measures)))
    label_index = LabelIndex(labels)
    for uncondensed in _blocks(rankings, rows):
        run, run_labels = _condense(uncondensed, label_index.labels_of(list(uncondensed)))
        for value in ir_measures.iter_calc(parsed_measures, run_labels, run):
            values[rows[value.query_id], columns[value.measure]] = value.value
    return values


def upper_bounds(labels: pa.Table, queries: Sequence[str], measures: Sequence[str]) -> Floats:
    """Value of a perfect ranking, shape (n_queries, n_measures)."""
    order = [("query_id", "ascending"), ("relevance", "descending"), ("text_id", "ascending")]
    sorted_labels = labels.select(["query_id", "text_id", "relevance"]).sort_by(order)
    starts = _run_starts(sorted_labels["query_id"].combine_chunks())
    places = np.arange(sorted_labels.num_rows) - np.repeat(starts[:-1], np.diff(starts))
    return compute_measures([sorted_labels.append_column("rank", pa.array(places + 1))], labels, queries, measures)


class LabelIndex:
    """Labels by query; only a few are Python objects at a time."""

    def __init__(self, labels: pa.Table) -> None:
        self._labels = labels.select(["query_id", "text_id", "relevance"]).sort_by("query_id").combine_chunks()
        ids = self._labels["query_id"].combine_chunks()
        self._starts = _run_starts(ids)
        first = ids.take(pa.array(self._starts[:-1]))
        self._number_of_query = {query: number for number, query in enumerate(first.to_pylist())}

    def labels_of(self, queries: Sequence[str]) -> dict[str, dict[str, int | None]]:
        """Relevance by query and text; None if uncertain."""
        labels = {}
        for query in queries:
            number = self._number_of_query[query]
            rows = self._labels.slice(self._starts[number], self._starts[number + 1] - self._starts[number])
            labels[query] = dict(zip(rows["text_id"].to_pylist(), rows["relevance"].to_pylist(), strict=True))
        return labels


def _condense(
    run: dict[str, dict[str, float]], labels: dict[str, dict[str, int | None]]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    """The rankings and labels without texts whose label is uncertain."""
    certain = {
        query: {text: relevance for text, relevance in of_query.items() if relevance is not None}
        for query, of_query in labels.items()
    }
    condensed = {
        query: {text: score for text, score in ranking.items() if labels[query].get(text, 0) is not None}
        for query, ranking in run.items()
    }
    return condensed, certain


def _blocks(rankings: Iterable[pa.Table], query_numbers: dict[str, int]) -> Iterator[dict[str, dict[str, float]]]:
    """Rankings in the format of ir_measures, a few queries at a time; the score is the negated rank."""
    for table in rankings:
        combined = table.select(["query_id", "rank", "text_id"]).combine_chunks()
        starts = _run_starts(combined["query_id"].combine_chunks())
        for first in range(0, len(starts) - 1, QUERIES_AT_ONCE):
            ends = starts[first : first + QUERIES_AT_ONCE + 1]
            rows = combined.slice(ends[0], ends[-1] - ends[0])
            ids = rows["query_id"].take(pa.array(ends[:-1] - ends[0])).to_pylist()
            texts, scores = rows["text_id"].to_pylist(), pc.negate(rows["rank"].cast(pa.float64())).to_pylist()
            slices = [slice(low - ends[0], high - ends[0]) for low, high in pairwise(ends)]
            lists = {
                query: dict(zip(texts[part], scores[part], strict=True))
                for query, part in zip(ids, slices, strict=True)
            }
            yield {query: ranking for query, ranking in lists.items() if query in query_numbers}


def _run_starts(values: pa.Array) -> NDArray[np.int64]:
    """Start of each run of equal values, and the end of the last."""
    if not len(values):
        return np.zeros(1, np.int64)
    differs = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.flatnonzero(differs) + 1, [len(values)]]).astype(np.int64)
