"""The figures of validation: a run whose labels are all known, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, confusion_matrix, precision_score, recall_score

from darklode.pipeline.base.agreement import fit_threshold
from darklode.pipeline.base.artifacts import Run
from helpers.reviewed_run import (
    Pairs,
    answer,
    answered,
    honest,
    key_of,
    pairs,
    put_run,
    reviewed,
    rows_of,
    sampled,
    validated,
)
from helpers.runs import read


def test_the_figures_are_those_of_scikit_learn_with_the_weights_of_the_sample(run: Run, made: Pairs) -> None:
    sample = reviewed(run, made, max_pairs=600, query_share=0.4)
    row = rows_of(run)[None, None]
    said = np.array([bool(made[key_of(one)]["relevant"]) for one in sample])
    read_ = np.array([made[key_of(one)]["relevant"] is not None for one in sample])
    true = np.array([made[key_of(one)]["true"] for one in sample])
    weight = np.array([one["weight"] for one in sample])
    assert row["precision"] == pytest.approx(precision_score(true, said, sample_weight=weight))
    assert row["recall"] == pytest.approx(recall_score(true, said, sample_weight=weight))
    assert row["missed"] == pytest.approx(weight[(true == 1) & ~said].sum())
    both = {"y1": true[read_], "y2": said[read_].astype(int)}
    assert row["kappa"] == pytest.approx(cohen_kappa_score(**both, sample_weight=weight[read_]))
    assert row["sample_kappa"] == pytest.approx(cohen_kappa_score(**both))
    (tn, fp), (fn, tp) = confusion_matrix(*both.values())
    names = ("true_negatives", "false_positives", "false_negatives", "true_positives")
    assert [row[name] for name in names] == [tn, fp, fn, tp]
    assert (row["unread_relevant"], row["unread_not_relevant"]) == (true[~read_].sum(), (1 - true[~read_]).sum())
    assert (row["labelled"], row["queries"]) == (600, len({key_of(one)[:2] for one in sample}))


@pytest.mark.slow
def test_the_estimates_are_near_the_truth_and_their_intervals_hold_it(run: Run, made: Pairs) -> None:
    reviewed(run, made, max_pairs=1500, query_share=0.5)
    rows, held = rows_of(run), []
    for tenant in (None, "a", "b"):
        own = [pair for key, pair in made.items() if tenant in (None, key[0])]
        true, said = np.array([pair["true"] for pair in own]), np.array([bool(pair["relevant"]) for pair in own])
        row = rows[tenant, None]
        for name, of in {
            "precision": precision_score(true, said),
            "recall": recall_score(true, said),
            "missed": ((true == 1) & ~said).sum(),
        }.items():
            held.append(row[f"{name}_low"] < of < row[f"{name}_high"])
        assert row["recall_high"] - row["recall_low"] < 0.25
        read_ = np.array([pair["relevant"] is not None for pair in own])
        assert row["kappa"] == pytest.approx(cohen_kappa_score(true[read_], said[read_]), abs=0.1)
        assert row["kappa_low"] + 0.02 < row["kappa"] < row["kappa_high"] - 0.02
        assert row["null_rate"] == pytest.approx((~read_).mean())
        assert (row["verdicts"], row["unreadable"]) == (len(own), (~read_).sum())
    assert sum(held) >= 8  # of nine; an interval is wrong once in twenty times


def test_a_retrievers_figures_are_of_what_it_found(run: Run, made: Pairs) -> None:
    sample = reviewed(run, made, max_pairs=0, query_share=1)
    assert len(sample) == len(made)
    for name in ("bm25", "dense", "lsa"):
        own = [pair for pair in made.values() if name in pair["retrievers"]]
        true, said = np.array([pair["true"] for pair in own]), np.array([bool(pair["relevant"]) for pair in own])
        row = rows_of(run)[None, name]
        assert row["labelled"] == len(own)
        assert row["recall"] == pytest.approx(recall_score(true, said))
        assert row["precision"] == pytest.approx(precision_score(true, said))
        assert row["fitted_threshold"] is None
        # Everything is labelled: nothing is left to guess.
        assert row["recall_low"] == pytest.approx(row["recall_high"]) == pytest.approx(row["recall"])


def test_the_threshold_is_fitted_over_the_run(run: Run, made: Pairs) -> None:
    sample = [
        row for row in reviewed(run, made, max_pairs=800, query_share=0.5) if made[key_of(row)]["relevant"] is not None
    ]
    probability = np.array([made[key_of(row)]["probability"] for row in sample], np.float32)
    positive = np.array([made[key_of(row)]["true"] == 1 for row in sample])
    weight = np.array([row["weight"] for row in sample])
    threshold, kappa = fit_threshold(probability, positive, weight) or (0, 0)
    row = rows_of(run)[None, None]
    assert row["fitted_threshold"] == threshold
    assert row["fitted_kappa"] == pytest.approx(kappa)
    assert row["fitted_kappa"] >= row["kappa"] - 1e-9
    assert row["cross_validated_kappa"] <= row["fitted_kappa"]
    at = cohen_kappa_score(positive, probability >= np.float32(threshold), sample_weight=weight)
    assert row["fitted_kappa"] == pytest.approx(at)
    assert row["threshold"] == 0.5


def test_too_few_labels_fit_no_threshold_and_several_thresholds_are_none_of_all(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), max_pairs=99)
    answered(run, honest(made, [key_of(row) for row in sample]))
    validated(run, {"a": 0.5, "b": 0.6})
    rows = rows_of(run)
    assert [rows[tenant, None]["threshold"] for tenant in (None, "a", "b")] == [None, 0.5, 0.6]
    assert rows[None, None]["fitted_threshold"] is None


def test_labels_outside_the_sample_are_counted_and_change_nothing(run: Run, made: Pairs) -> None:
    sample = reviewed(run, made, max_pairs=100)
    before = rows_of(run)[None, None]
    inside = {key_of(row) for row in sample}
    others = [key for key in made if key not in inside][:40]
    unknown = ("gone", "q", "c")
    answered(run, [*honest(made, [*inside, *others]), answer(unknown, 1)])
    validated(run, {"a": 0.5, "b": 0.5})
    after = rows_of(run)[None, None]
    assert after["outside"] == 41
    assert {**after, "outside": 0} == before


def test_what_nobody_labelled_is_unknown(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), max_pairs=100)
    found = [key_of(row) for row in sample if made[key_of(row)]["relevant"]]
    answered(run, honest(made, found))
    validated(run)
    row = rows_of(run)[None, None]
    assert row["precision"] is not None
    assert [row[name] for name in ("recall", "missed", "kappa", "recall_low", "missed_high")] == [None] * 5
    answered(run, [])
    validated(run)
    row = rows_of(run)[None, None]
    assert (row["labelled"], row["precision"], row["sample_kappa"]) == (0, None, None)
    assert row["null_rate"] > 0


def test_what_was_not_judged_is_missed(run: Run, made: Pairs) -> None:
    for pair in made.values():
        if pair["relevant"] is False and pair["probability"] < 0.3:
            pair["relevant"] = "unjudged"
    sample = sampled(put_run(run, made), max_pairs=0, query_share=1)
    answered(run, honest(made, [key_of(row) for row in sample]))
    validated(run)
    row = rows_of(run)[None, None]
    missed = sum(pair["true"] for pair in made.values() if pair["relevant"] is not True)
    assert row["missed"] == pytest.approx(missed)
    assert row["verdicts"] == sum(pair["relevant"] != "unjudged" for pair in made.values())
    assert {one["verdict"] for one in read(run, "disagreements")} == {
        "relevant",
        "not relevant",
        "unreadable",
        "unjudged",
    }


def test_grades_are_compared_where_judge_and_people_give_them(run: Run) -> None:
    made = pairs({"a": 60}, unreadable=0)
    chance = np.random.default_rng(3)
    for pair in made.values():
        pair["grade"] = int(chance.integers(1, 4)) if pair["relevant"] else int(chance.integers(0, 2))
        pair["true"] = int(np.clip(pair["grade"] + chance.integers(-1, 2), 0, 3)) if pair["relevant"] else 0
    sample = reviewed(run, made, max_pairs=300, query_share=0.5)
    row = rows_of(run)[None, None]
    judge = [max(made[key_of(one)]["grade"], 1) if made[key_of(one)]["relevant"] else 0 for one in sample]
    people = [made[key_of(one)]["true"] for one in sample]
    weight = [one["weight"] for one in sample]
    assert row["weighted_kappa"] == pytest.approx(
        cohen_kappa_score(judge, people, weights="quadratic", sample_weight=weight)
    )
    assert row["weighted_kappa_low"] < row["weighted_kappa"] < row["weighted_kappa_high"]


@pytest.mark.parametrize("grades", [(1, 3), (2, 1)], ids=["the judge gives two values", "people give two values"])
def test_two_values_are_no_grades(run: Run, grades: tuple[int, int]) -> None:
    made = pairs({"a": 40}, unreadable=0)
    for pair in made.values():
        pair["grade"], pair["true"] = grades[0] * int(pair["relevant"]), grades[1] * pair["true"]
    reviewed(run, made, max_pairs=200, query_share=0.5)
    row = rows_of(run)[None, None]
    assert row["sample_kappa"] is not None
    assert row["weighted_kappa"] is None
