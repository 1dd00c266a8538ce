"""The judge against people: a run whose labels are all known, and small ones worked out by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, confusion_matrix, precision_score, recall_score

from darklode.pipeline.base.artifacts import FunnelStep, Run
from darklode.pipeline.base.raters import alpha, fit_threshold
from darklode.pipeline.validate.review.journal import standing
from darklode.pipeline.validate.stage import reviewer_agreement
from helpers.reviewed_run import Pairs, answer, answered, honest, key_of, pairs, put_run, rows_of, sampled, validated
from helpers.runs import put, read


def reviewed(run: Run, made: Pairs, **options: object) -> list[dict[str, object]]:
    """Draw a sample, have it labelled by somebody who knows, and validate."""
    sample = sampled(put_run(run, made), **options)
    answered(run, honest(made, [key_of(row) for row in sample]))
    validated(run, {"a": 0.5, "b": 0.5})
    return sample


@pytest.fixture
def made() -> Pairs:
    return pairs({"a": 120, "b": 60})


def test_the_figures_are_those_of_scikit_learn_with_the_weights_of_the_sample(run: Run, made: Pairs) -> None:
    sample = reviewed(run, made, pairs=600, query_share=0.4)
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


def test_the_estimates_are_near_the_truth_and_their_intervals_hold_it(run: Run, made: Pairs) -> None:
    reviewed(run, made, pairs=1500, query_share=0.5)
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
        assert row["null_rate"] == pytest.approx((~read_).mean())
        assert (row["verdicts"], row["unreadable"]) == (len(own), (~read_).sum())
    assert sum(held) >= 8  # of nine; an interval is wrong once in twenty times


def test_a_retrievers_figures_are_of_what_it_found(run: Run, made: Pairs) -> None:
    sample = reviewed(run, made, pairs=0, query_share=1)
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
        row for row in reviewed(run, made, pairs=800, query_share=0.5) if made[key_of(row)]["relevant"] is not None
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
    sample = sampled(put_run(run, made), pairs=99)
    answered(run, honest(made, [key_of(row) for row in sample]))
    validated(run, {"a": 0.5, "b": 0.6})
    rows = rows_of(run)
    assert [rows[tenant, None]["threshold"] for tenant in (None, "a", "b")] == [None, 0.5, 0.6]
    assert rows[None, None]["fitted_threshold"] is None


def test_the_label_is_what_most_reviewers_said(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), pairs=60, query_share=1)
    keys = [key_of(row) for row in sample if made[key_of(row)]["relevant"]][:6]
    said: list[list[int | None]] = [[1, 0, 3], [0, 0, 2], [1, 0], [None, None], [3, 1], [None, 2]]
    answered(
        run,
        [
            answer(key, relevance, f"reviewer {number}")
            for key, of in zip(keys, said, strict=True)
            for number, relevance in enumerate(of)
        ],
    )
    manifest = validated(run)
    row = rows_of(run)[None, None]
    assert (row["labelled"], row["tied"], row["skipped"], row["outside"]) == (4, 1, 1, 0)
    assert (row["true_positives"], row["false_positives"]) == (3, 1)
    assert manifest.funnel == [
        FunnelStep("validate", "sampled pairs", 60, "labelled pairs", 4, {"tied": 1, "skipped": 1, "unanswered": 54})
    ]
    (wrong,) = read(run, "disagreements")
    assert (key_of(wrong), wrong["kind"], wrong["relevance"]) == (keys[1], "false positive", 0)
    assert wrong["reviewers"] == ["reviewer 0", "reviewer 1", "reviewer 2"]


def test_labels_outside_the_sample_are_counted_and_change_nothing(run: Run, made: Pairs) -> None:
    sample = reviewed(run, made, pairs=100)
    before = rows_of(run)[None, None]
    inside = {key_of(row) for row in sample}
    others = [key for key in made if key not in inside][:40]
    unknown = ("gone", "q", "c")
    answered(run, [*honest(made, [*inside, *others]), answer(unknown, 1)])
    validated(run, {"a": 0.5, "b": 0.5})
    after = rows_of(run)[None, None]
    assert after["outside"] == 41
    assert {**after, "outside": 0} == before


def test_who_saw_the_verdict_is_counted(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), pairs=50)
    answered(run, [answer(key_of(row), 1, judge_shown=place < 20) for place, row in enumerate(sample)])
    validated(run)
    assert rows_of(run)[None, None]["shown"] == 20


def test_disagreements_come_with_the_reasons_and_those_that_stand_for_most_first(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), pairs=300, query_share=0.5)
    answered(run, [answer(key_of(row), made[key_of(row)]["true"], "ann", rationale="because") for row in sample])
    validated(run)
    found = read(run, "disagreements")
    wrong = {key_of(row) for row in sample if bool(made[key_of(row)]["relevant"]) != bool(made[key_of(row)]["true"])}
    assert {key_of(row) for row in found} == wrong
    assert [row["weight"] for row in found] == sorted((row["weight"] for row in found), reverse=True)
    assert {row["kind"] for row in found} == {"false positive", "missed positive"}
    assert all((row["reviewers"], row["reasons"]) == (["ann"], ["because"]) for row in found)


def test_what_nobody_labelled_is_unknown(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), pairs=100)
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
    sample = sampled(put_run(run, made), pairs=0, query_share=1)
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
    sample = reviewed(run, made, pairs=300, query_share=0.5)
    row = rows_of(run)[None, None]
    judge = [max(made[key_of(one)]["grade"], 1) if made[key_of(one)]["relevant"] else 0 for one in sample]
    people = [made[key_of(one)]["true"] for one in sample]
    weight = [one["weight"] for one in sample]
    assert row["weighted_kappa"] == pytest.approx(
        cohen_kappa_score(judge, people, weights="quadratic", sample_weight=weight)
    )
    assert row["weighted_kappa_low"] < row["weighted_kappa"] < row["weighted_kappa_high"]


def test_the_same_answers_give_the_same_tables(run: Run, made: Pairs) -> None:
    reviewed(run, made, pairs=200)
    names = ("validation", "disagreements", "reviewer_agreement")
    before = {name: read(run, name) for name in names}
    validated(run, {"a": 0.5, "b": 0.5})
    assert {name: read(run, name) for name in names} == before


def test_a_run_without_candidates_has_nothing_to_validate(run: Run) -> None:
    sampled(put_run(run, {}))
    answered(run, [])
    validated(run)
    assert read(run, "validation") == []


NAMES = ("ann", "bob", "cleo")
Said = dict[tuple[int, int], dict[str, int | None]]


def said(queries: int = 30, per_query: int = 4, seed: int = 0) -> Said:
    """Three people who mostly agree; each skips or misses some pairs."""
    chance, made = np.random.default_rng(seed), Said()
    for query in range(queries):
        for chunk in range(per_query):
            true = int(chance.random() < 0.4) * int(chance.integers(1, 3))
            made[query, chunk] = {
                name: None if chance.random() < 0.1 else true if chance.random() < 0.85 else 1 - min(true, 1)
                for name in NAMES
                if chance.random() < 0.8
            }
    return made


def agreement(run: Run, made: Said) -> list[dict[str, object]]:
    answers = [
        answer(("t", f"q{query}", f"c{chunk}"), relevance, name)
        for (query, chunk), of in made.items()
        for name, relevance in of.items()
    ]
    put(run, "reviews", standing(answers))
    rows: list[dict[str, object]] = reviewer_agreement(run.tables("reviews"), 200, 13).to_pylist()
    return rows


def test_each_two_agree_as_scikit_learn_says(run: Run) -> None:
    made = said()
    *two, _ = agreement(run, made)
    assert [(row["reviewer"], row["other"]) for row in two] == list(combinations(NAMES, 2))
    for row in two:
        both = [(of.get(str(row["reviewer"])), of.get(str(row["other"]))) for of in made.values()]
        labels = np.array([(one > 0, other > 0) for one, other in both if one is not None and other is not None])
        assert (row["pairs"], row["alike"]) == (len(labels), (labels[:, 0] == labels[:, 1]).sum())
        assert row["kappa"] == pytest.approx(cohen_kappa_score(*labels.T))
        assert row["kappa_low"] < row["kappa"] < row["kappa_high"]  # type: ignore[operator]
        assert row["alpha"] is None


def test_all_together_have_an_alpha(run: Run) -> None:
    made = said()
    row = agreement(run, made)[-1]
    votes = np.array(
        [
            (sum(v > 0 for v in of), sum(v == 0 for v in of))
            for of in ([value for value in one.values() if value is not None] for one in made.values())
        ]
    )
    votes = votes[votes.sum(axis=1) > 1]
    assert (row["reviewer"], row["other"], row["pairs"]) == (None, None, len(votes))
    assert row["alike"] == (votes.min(axis=1) == 0).sum()
    assert row["alpha"] == pytest.approx(float(alpha(votes[:, 0], votes[:, 1], np.ones(len(votes)))))
    assert row["alpha_low"] < row["alpha"] < row["alpha_high"]  # type: ignore[operator]


def test_the_intervals_follow_queries_not_pairs(run: Run) -> None:
    made: Said = {}
    for query in range(30):  # all pairs of a query are alike: ten times the pairs tell nothing new
        for chunk in range(10):
            made[query, chunk] = {"ann": query % 2, "bob": (query % 2 + (query % 5 == 0)) % 2}
    wide = agreement(run, made)[0]
    narrow = agreement(run, {(query * 10 + chunk, 0): of for (query, chunk), of in made.items()})[0]
    assert wide["kappa"] == narrow["kappa"]
    width = [row["kappa_high"] - row["kappa_low"] for row in (wide, narrow)]  # type: ignore[operator]
    assert width[0] > 2 * width[1]


@pytest.mark.parametrize("of", [{}, {"ann": 1}, {"ann": 1, "bob": None}])
def test_where_nobody_shares_a_pair_there_is_no_agreement(run: Run, of: dict[str, int | None]) -> None:
    assert agreement(run, {(query, 0): of for query in range(5)}) == []


def test_those_who_never_differ_in_one_label_have_no_kappa(run: Run) -> None:
    row, everyone = agreement(run, {(query, 0): {"ann": 1, "bob": 1} for query in range(5)})
    assert (row["pairs"], row["alike"], row["kappa"], row["kappa_low"]) == (5, 5, None, None)
    assert everyone["alpha"] is None
