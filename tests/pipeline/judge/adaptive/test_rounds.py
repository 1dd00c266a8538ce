"""The rounds as a whole."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from darklode.pipeline.judge.adaptive.pool_features import Evidence
from darklode.pipeline.judge.adaptive.rounds import ROUND_SHARE, JudgingRounds
from darklode.pipeline.judge.adaptive.selection import MIN_JUDGED_SHARE
from helpers.made_evidence import made


def run(evidence: Evidence, labels: Any, seed: int = 0, recall: float = 0.8) -> tuple[JudgingRounds, list[Any]]:
    rounds, asked = JudgingRounds(evidence, recall=recall, random_share=0.2, seed=seed), []
    while len(numbers := rounds.next_pairs()):
        rounds.learn(numbers, labels[numbers])
        asked.append(numbers)
    return rounds, asked


@pytest.mark.slow
def test_rounds_ask_for_no_pair_twice_and_reach_the_recall() -> None:
    evidence, labels = made()
    reached = 0
    for seed in range(12):
        rounds, asked = run(evidence, labels, seed)
        everything = np.concatenate(asked)
        assert len(np.unique(everything)) == len(everything)
        assert set(rounds.unjudged_pairs) == set(range(evidence.n_pairs)) - set(everything)
        assert rounds.positives == labels[everything].sum()
        reached += rounds.positives >= 0.8 * labels.sum()
    assert reached >= 11


def test_verdicts_of_the_slice_teach_the_learner_nothing() -> None:
    """Other labels for the slice's negatives, as many positives as before: the same calls follow."""
    evidence, labels = made()
    rounds, asked = run(evidence, labels)
    drawn = np.flatnonzero(rounds._random)
    other = labels.copy()
    other[drawn] = np.where(labels[drawn] > 0, 1.0, np.nan)
    assert all(np.array_equal(*pair) for pair in zip(asked, run(evidence, other)[1], strict=True))


@pytest.mark.slow
def test_rounds_start_small_and_grow_to_a_share_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darklode.pipeline.judge.adaptive.rounds.MIN_ROUND", 40)
    evidence, labels = made()
    rounds, sizes, is_random = JudgingRounds(evidence, recall=0.9999, random_share=0.1, seed=0), [], []
    while len(numbers := rounds.next_pairs()):
        rounds.learn(numbers, labels[numbers])
        sizes.append(len(numbers))
        is_random.append(bool(rounds._random[numbers].all()))
    largest = round(ROUND_SHARE * evidence.n_pairs)
    assert set(sizes[: sum(is_random) - 1]) == {largest}, "no verdict of the sample is learned from"
    after_sample = sizes[sum(is_random) :]
    assert after_sample[:4] == [40, 52, 68, 89]
    assert max(after_sample) == largest
    assert after_sample[8:-1] == [largest] * len(after_sample[8:-1])


def test_queries_with_few_positives_are_counted() -> None:
    evidence, _ = made(4, size=30)
    labels = np.zeros(evidence.n_pairs)
    for query, n_positives in enumerate((1, 2, 5, 6)):
        labels[evidence.starts[query] : evidence.starts[query] + n_positives] = 1
    rounds, _ = run(evidence, labels, recall=0.9999)
    assert rounds.summary()["queries_found"] == [4]
    assert rounds.summary()["queries_found_2_to_5"] == [2]


def test_no_query_starves() -> None:
    """Of three queries every feature says that nothing answers them: each still gets its share of the calls."""
    evidence, labels = made()
    doubtful = replace(evidence, features=evidence.features - 5 * (evidence.query < 3)[:, None].astype(np.float32))
    asked = np.concatenate(run(doubtful, labels)[1])
    share = np.bincount(evidence.query[asked], minlength=evidence.n_queries) / np.diff(evidence.starts)
    assert share.min() >= MIN_JUDGED_SHARE * len(asked) / evidence.n_pairs
    assert share.max() > 1.2 * share.mean()


def test_a_tenant_without_positives_is_judged_to_the_end_even_where_the_slice_exceeds_the_recall() -> None:
    evidence, _ = made(6)
    rounds = JudgingRounds(evidence, recall=0.1, random_share=0.3, seed=0)
    while len(numbers := rounds.next_pairs()):
        rounds.learn(numbers, np.zeros(len(numbers)))
    assert (len(rounds.unjudged_pairs), rounds.missed_positives.share) == (0, 0)


@pytest.mark.slow
def test_what_queries_miss_is_estimated_beside_what_is_missed_of_all() -> None:
    evidence, labels = made(60)
    covered = 0
    for seed in range(8):
        rounds, asked = run(evidence, labels, seed)
        everything = np.concatenate(asked)
        row = {name: value[0] for name, value in rounds.summary().items()}
        total, found = (np.bincount(evidence.query[w], labels[w], 60) for w in (slice(None), everything))
        assert (row["queries"], row["queries_found"]) == (60, (found > 0).sum())
        truth = 1 - np.mean(found[total > 0] / total[total > 0])
        covered += row["query_missed_low"] <= truth <= row["query_missed_high"]
    assert covered >= 7
