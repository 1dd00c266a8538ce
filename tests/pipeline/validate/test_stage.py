"""The judge against people: a run whose labels are all known, and small ones worked out by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from darklode.pipeline.base.agreement import alpha
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.validate.review.journal import current_answers
from darklode.pipeline.validate.stage import reviewer_agreement
from helpers.reviewed_run import Pairs, answer, answered, key_of, put_run, reviewed, sampled, validated
from helpers.runs import put, read


def test_disagreements_come_with_the_reasons_and_those_that_stand_for_most_first(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), max_pairs=300, query_share=0.5)
    answered(run, [answer(key_of(row), made[key_of(row)]["true"], "ann", rationale="because") for row in sample])
    validated(run)
    found = read(run, "disagreements")
    wrong = {key_of(row) for row in sample if bool(made[key_of(row)]["relevant"]) != bool(made[key_of(row)]["true"])}
    assert {key_of(row) for row in found} == wrong
    assert [row["weight"] for row in found] == sorted((row["weight"] for row in found), reverse=True)
    assert {row["kind"] for row in found} == {"false positive", "missed positive"}
    assert all((row["reviewers"], row["reasons"]) == (["ann"], ["because"]) for row in found)


def test_the_same_answers_give_the_same_tables(run: Run, made: Pairs) -> None:
    reviewed(run, made, max_pairs=200)
    names = ("validation", "disagreements", "reviewer_agreement")
    before = {name: read(run, name) for name in names}
    validated(run, {"a": 0.5, "b": 0.5})
    assert {name: read(run, name) for name in names} == before


def test_the_funnel_tells_why_a_drawn_pair_has_no_label(run: Run, made: Pairs) -> None:
    keys = [key_of(row) for row in sampled(put_run(run, made), max_pairs=100)]
    tied = [answer(key, relevance, name) for key in keys[:4] for name, relevance in (("ann", 0), ("bob", 1))]
    skipped = [answer(key, None) for key in keys[4:6]]
    answered(run, tied + skipped + [answer(key, 1) for key in keys[6:16]])
    (step,) = validated(run).funnel
    assert (step.rows_in, step.rows_out) == (len(keys), 10)
    assert step.dropped == {"tied": 4, "skipped": 2, "unanswered": len(keys) - 16}


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
    put(run, "reviews", current_answers(answers))
    rows: list[dict[str, object]] = reviewer_agreement(run.tables("reviews"), 200, 13).to_pylist()
    return rows


def test_each_two_agree_as_scikit_learn_says(run: Run) -> None:
    made = said()
    *two, _ = agreement(run, made)
    assert [(row["reviewer"], row["other"]) for row in two] == list(combinations(NAMES, 2))
    for row in two:
        both = [(of.get(str(row["reviewer"])), of.get(str(row["other"]))) for of in made.values()]
        labels = np.array([(one > 0, other > 0) for one, other in both if one is not None and other is not None])
        assert (row["pairs"], row["agreements"]) == (len(labels), (labels[:, 0] == labels[:, 1]).sum())
        assert row["kappa"] == pytest.approx(cohen_kappa_score(*labels.T))
        assert row["kappa_low"] < row["kappa"] < row["kappa_high"]  # type: ignore[operator]
        assert row["alpha"] is None


def test_grades_of_each_two_agree_as_scikit_learn_says(run: Run) -> None:
    made = said(seed=3)
    *two, every = agreement(run, made)
    for row in two:
        both = [(of.get(str(row["reviewer"])), of.get(str(row["other"]))) for of in made.values()]
        grades = np.array([pair for pair in both if None not in pair])
        assert row["weighted_kappa"] == pytest.approx(cohen_kappa_score(*grades.T, weights="quadratic"))
        assert row["weighted_kappa"] != pytest.approx(row["kappa"])
        assert row["weighted_kappa_low"] < row["weighted_kappa"] < row["weighted_kappa_high"]  # type: ignore[operator]
    assert every["weighted_kappa"] is None


def test_binary_answers_have_no_agreement_of_grades(run: Run) -> None:
    made = {pair: {name: grade and 1 for name, grade in of.items()} for pair, of in said().items()}
    assert {row["weighted_kappa"] for row in agreement(run, made)} == {None}


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
    assert row["agreements"] == (votes.min(axis=1) == 0).sum()
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
    assert (row["pairs"], row["agreements"], row["kappa"], row["kappa_low"]) == (5, 5, None, None)
    assert everyone["alpha"] is None
