"""A logistic of measured numbers: what it learns, what it says, and what it refuses."""

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.judge.logistic import Logistic, LogisticJudge
from darklode.pipeline.judge.port import PAIRS, REPLIES, Judge

Features = NDArray[np.float64]


class Lengths:
    """The length of the chunk is all that it sees; of an empty query it knows nothing."""

    measure_id = "lengths"

    def __call__(self, pairs: pa.Table) -> Features:
        lengths = pc.utf8_length(pairs["text"]).to_numpy().astype(np.float64)
        return np.where(pc.equal(pairs["query"], "").to_numpy(), np.nan, lengths)[:, None]


def pairs(*lengths: int, query: str = "query") -> pa.Table:
    rows = [dict.fromkeys(PAIRS.names, "") | {"query": query, "text": "x" * length} for length in lengths]
    return pa.Table.from_pylist(rows, schema=PAIRS)


def said(judge: Judge, asked: pa.Table) -> list[dict[str, Any]]:
    replies = asyncio.run(judge.judge(asked))
    assert replies.schema.equals(REPLIES)
    rows: list[dict[str, Any]] = replies.to_pylist()
    return rows


SIX = LogisticJudge("test-1", Lengths(), Logistic((2.0,), -12.0), 0.5)


def drawn(weights: list[float], n: int = 4000) -> tuple[Features, NDArray[np.bool_]]:
    random = np.random.default_rng(5)
    features = random.normal(3.0, 2.0, (n, len(weights)))
    chance = 1 / (1 + np.exp(-(features @ np.array(weights) - 2)))
    return features, random.random(n) < chance


def test_a_smaller_prior_variance_shrinks_only_its_weight() -> None:
    features, positive = drawn([0.8, -0.8], 200)
    free, shrunk = Logistic.fit(features, positive), Logistic.fit(features, positive, np.array([0.5, 0.01]))
    assert shrunk.weights[0] == pytest.approx(free.weights[0], abs=0.25)
    assert abs(shrunk.weights[1]) < 0.5 * abs(free.weights[1])
    assert Logistic.fit(features, positive, np.array([0.5, 0.5])) == free, "the default: 1 / number of features"


def test_a_trained_judge_uses_its_prior_variance() -> None:
    asked = pairs(1, 2, 3, 8, 9, 10)
    positive = np.array([False, False, False, True, True, True])
    weak, strong = (
        LogisticJudge("test-1", Lengths(), None, 0.5, np.array([variance])).with_training(asked, positive)
        for variance in (0.01, 1.0)
    )
    assert weak.judge_id != strong.judge_id
    assert said(weak, pairs(10))[0]["probability"] < said(strong, pairs(10))[0]["probability"]
    assert weak.with_training(asked, positive).judge_id == weak.judge_id


def test_a_weight_counts_as_many_labels() -> None:
    features, positive = drawn([0.8, -0.3])
    oversampled = np.flatnonzero(positive | (np.arange(len(positive)) % 4 == 0))
    weight = np.where(positive, 1.0, 4.0)[oversampled]
    whole = Logistic.fit(features, positive)
    weighted = Logistic.fit(features[oversampled], positive[oversampled], weight=weight)
    unweighted = Logistic.fit(features[oversampled], positive[oversampled])
    truth = positive.mean()
    assert weighted.probability(features).mean() == pytest.approx(truth, abs=0.02)
    assert whole.probability(features).mean() == pytest.approx(truth, abs=0.02)
    assert unweighted.probability(features).mean() > truth + 0.1


def test_fitted_probabilities_are_the_shares_that_people_found_relevant() -> None:
    features, positive = drawn([0.8, -0.3])
    model = Logistic.fit(features, positive)
    assert np.allclose(model.weights, [0.8, -0.3], atol=0.1)
    assert model.intercept == pytest.approx(-2, abs=0.25)
    probability = model.probability(features)
    for low in (0.1, 0.3, 0.5, 0.7):
        within = (probability >= low) & (probability < low + 0.2)
        assert positive[within].mean() == pytest.approx(probability[within].mean(), abs=0.06)


def test_a_number_that_never_differs_weighs_nothing_and_breaks_nothing() -> None:
    features, positive = drawn([0.8])
    model = Logistic.fit(np.hstack([features, np.full((len(features), 1), 7.0)]), positive)
    assert model.weights[1] == 0
    assert np.isfinite(model.probability(np.array([[1.0, 7.0]]))).all()


def log_loss(model: Logistic, features: Features, positive: NDArray[np.bool_]) -> float:
    said = model.probability(features).clip(1e-6, 1 - 1e-6)
    return float(-np.log(np.where(positive, said, 1 - said)).mean())


def test_numbers_that_say_nothing_are_not_learned_from_few_labels() -> None:
    features, positive = drawn([0.8])
    noise = np.random.default_rng(9).normal(size=(len(features), 30))
    many = np.hstack([features, noise])
    model = Logistic.fit(many[:100], positive[:100])
    chance = Logistic((0.0,) * 31, float(np.log(positive.mean() / (1 - positive.mean()))))
    assert log_loss(model, many[100:], positive[100:]) < log_loss(chance, many[100:], positive[100:]) - 0.05
    alone = Logistic.fit(features[:100], positive[:100])
    assert abs(alone.weights[0]) > 1.2 * abs(model.weights[0]), "one number alone is hardly held back"


def test_the_threshold_makes_labels_of_probabilities() -> None:
    assert [row["relevant"] for row in said(SIX, pairs(5, 6, 7))] == [False, True, True]
    assert said(SIX, pairs(6))[0]["probability"] == 0.5
    strict = LogisticJudge("test-1", Lengths(), Logistic((2.0,), -12.0), 0.51)
    assert [row["relevant"] for row in said(strict, pairs(5, 6, 7))] == [False, False, True]
    assert strict.judge_id != SIX.judge_id


def test_what_is_not_known_is_null_and_says_why() -> None:
    (row,) = said(SIX, pairs(9, query=""))
    assert (row["relevant"], row["probability"], row["error"]) == (None, None, "no features of this pair are known")
    assert said(SIX, pairs()) == []


def test_the_company_of_a_pair_changes_nothing() -> None:
    many = pairs(*range(12), *([3] * 9000))
    assert said(SIX, many)[:12] == [said(SIX, pairs(length))[0] for length in range(12)]


def test_labels_teach_it_and_what_it_knew_before_is_forgotten() -> None:
    asked = pairs(*range(20), 4, query="query")
    positive = np.arange(21) >= 10
    once = SIX.with_training(asked, positive)
    assert [row["relevant"] for row in said(once, pairs(2, 18))] == [False, True]
    again = LogisticJudge("test-1", Lengths(), None, 0.5).with_training(asked, positive)
    assert again.judge_id == once.judge_id != SIX.judge_id
    with_unknown = pa.concat_tables([asked, pairs(1, 1, query="")])
    assert SIX.with_training(with_unknown, np.append(positive, [True, True])).judge_id == once.judge_id


def test_without_weights_it_says_what_it_needs() -> None:
    blank = LogisticJudge("test-1", Lengths(), None, 0.5)
    with pytest.raises(SettingsError, match=r"at least 100 human labels of the pool.*--human"):
        _ = blank.judge_id
    with pytest.raises(SettingsError, match="all labels of a cross-validation fold are equal"):
        blank.with_training(pairs(1, 2, 3), np.array([True, True, True]))
