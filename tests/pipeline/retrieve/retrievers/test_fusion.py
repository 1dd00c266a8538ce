"""Fusion of rankings by reciprocal rank and by normalized score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from darklode.pipeline.retrieve.retrievers.fusion import FusionMethod, Hybrid, fuse, min_max_scores, reciprocal_ranks
from darklode.pipeline.retrieve.retrievers.port import Hits, Recall, Retriever


def hits(*lists: dict[int, float], k: int = 4) -> Hits:
    """Hits of each query, as given."""
    found = Hits(np.full((len(lists), k), -1, np.int64), np.full((len(lists), k), np.nan, np.float32))
    for number, ranking in enumerate(lists):
        found.rows[number, : len(ranking)] = list(ranking)
        found.scores[number, : len(ranking)] = list(ranking.values())
    return found


def ranked(found: Hits, query: int = 0) -> dict[int, float]:
    is_hit = found.rows[query] >= 0
    return dict(zip(found.rows[query][is_hit].tolist(), found.scores[query][is_hit].tolist(), strict=True))


FIRST = hits({5: 9.0, 2: 5.0, 7: 1.0}, {}, {3: 2.0})
SECOND = hits({2: 0.9, 6: 0.4}, {1: 0.3}, {3: 0.1})


def test_reciprocal_ranks_are_summed_over_the_lists_that_have_the_chunk() -> None:
    fused = fuse([FIRST, SECOND], (1, 1), "rrf", 10, 8)
    assert ranked(fused) == pytest.approx({2: 1 / 62 + 1 / 61, 5: 1 / 61, 6: 1 / 62, 7: 1 / 63})
    assert list(ranked(fused)) == [2, 5, 6, 7]
    assert list(ranked(fused, 1)) == [1]
    assert ranked(fuse([FIRST, SECOND], (0, 3), "rrf", 10, 8))[2] == pytest.approx(3 / 61)


def test_scores_are_normalized_per_query_and_a_missing_hit_counts_as_the_worst() -> None:
    assert min_max_scores(FIRST)[0].tolist() == [1, 0.5, 0, 0]
    assert min_max_scores(hits({4: 3.0, 1: 3.0}))[0].tolist() == [1, 1, 0, 0]
    fused = fuse([FIRST, SECOND], (0.25, 0.75), "weighted", 10, 8)
    assert ranked(fused) == pytest.approx({2: 0.125 + 0.75, 5: 0.25, 6: 0.0, 7: 0.0})
    assert list(ranked(fused)) == [2, 5, 6, 7], "equal scores in the order of their rows"
    assert ranked(fused, 2) == {3: 1.0}


def test_negative_scores_and_lists_without_hits_are_normalized_too() -> None:
    assert min_max_scores(hits({0: -1.0, 1: -3.0}, {}))[:, :2].tolist() == [[1, 0], [0, 0]]
    assert not reciprocal_ranks(hits({})).any()


def test_depth_and_number_of_chunks_bound_the_lists() -> None:
    assert fuse([FIRST, SECOND], (1, 1), "rrf", 2, 8).rows.tolist() == [[2, 5], [1, -1], [3, -1]]
    assert fuse([FIRST, SECOND], (1, 1), "rrf", 100, 8).rows.shape == (3, 8)
    none = fuse([hits(), hits()], (1, 1), "rrf", 3, 8)
    assert none.rows.shape == none.scores.shape == (0, 3)


@pytest.mark.parametrize("method", ["rrf", "weighted"])
def test_fusion_is_that_of_a_plain_loop(method: FusionMethod) -> None:
    random = np.random.default_rng(3)
    lists = []
    for _ in range(3):
        rankings = []
        for _ in range(40):
            scores = np.sort(random.normal(size=int(random.integers(0, 12))))[::-1]
            rankings.append(dict(zip(random.permutation(30)[: len(scores)].tolist(), scores.tolist(), strict=True)))
        lists.append(hits(*rankings, k=12))
    weights = (0.5, 1.0, 2.0)
    fused = fuse(lists, weights, method, 9, 30)
    for query in range(40):
        sums = defaultdict[int, float](float)
        for weight, found in zip(weights, lists, strict=True):
            ranking = ranked(found, query)
            low, high = min(ranking.values(), default=0), max(ranking.values(), default=0)
            for rank, (row, score) in enumerate(ranking.items(), 1):
                share = (score - low) / (high - low) if high > low else 1.0
                sums[row] += weight * (1 / (60 + rank) if method == "rrf" else share)
        best = sorted(sums, key=lambda row: (-round(sums[row], 6), row))[:9]
        assert ranked(fused, query) == pytest.approx({row: sums[row] for row in best}, abs=1e-6)
        assert list(np.diff(fused.scores[query][fused.rows[query] >= 0]) <= 0) == [True] * max(0, len(best) - 1)


class MeasuredRecall(Retriever):
    """A retriever of which only the recall is known."""

    name = "measured"

    def __init__(self, n_found: int | None) -> None:
        self._n_found = n_found

    @property
    def recall(self) -> Recall | None:
        return None if self._n_found is None else Recall(1, 10, self._n_found, 10)

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        raise NotImplementedError


@pytest.mark.parametrize(("found", "lowest"), [((9, None, 7), 7), ((None, None), None)])
def test_a_fusion_is_as_exact_as_its_least_exact_member(found: Sequence[int | None], lowest: int | None) -> None:
    members = [MeasuredRecall(n_found) for n_found in found]
    assert Hybrid("mix", members, [1.0] * len(found), "rrf", 10, 10).recall == MeasuredRecall(lowest).recall
