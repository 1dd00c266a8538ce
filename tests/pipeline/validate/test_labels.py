"""The human label of a pair, the answers as a table, and the labels as a CSV."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import FunnelStep, Run
from darklode.pipeline.judge.human_labels import read_labels
from darklode.pipeline.validate.labels import (
    REVIEWS_STAGE,
    ReviewedPairs,
    answers_fingerprint,
    labels_csv,
    require_answers,
    write_reviews,
)
from darklode.pipeline.validate.review.journal import AnswerJournal, ReviewAnswer
from darklode.schemas.review_tables import REVIEW_SAMPLE
from helpers.reviewed_run import Pairs, answer, answered, honest, key_of, put_run, rows_of, sampled, validated
from helpers.runs import execute, put, read

NAMES = ("queries", "pool", "verdicts", "review_sample", "review_strata", "reviews")


def test_the_label_is_what_most_reviewers_said(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), max_pairs=60, query_share=1)
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


def test_who_saw_the_verdict_is_counted(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), max_pairs=50)
    answered(run, [answer(key_of(row), 1, judge_shown=place < 20) for place, row in enumerate(sample)])
    validated(run)
    assert rows_of(run)[None, None]["shown"] == 20


def test_an_answer_that_is_given_and_validated_meanwhile_is_not_missed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def validate() -> None:
        execute(run, REVIEWS_STAGE, lambda _, output: write_reviews(run.store, output))

    AnswerJournal(run.store).append(answer(("t", "q", "c"), 0))
    validate()
    read_now, reads = AnswerJournal.read, iter(range(9))

    def read_before_another(journal: AnswerJournal) -> list[ReviewAnswer]:
        found = read_now(journal)
        if not next(reads):
            AnswerJournal(run.store).append(answer(("t", "q", "d"), 1))
            validate()
        return found

    monkeypatch.setattr(AnswerJournal, "read", read_before_another)
    require_answers(run)


def test_the_standing_answers_become_a_table(run: Run) -> None:
    journal, before = AnswerJournal(run.store), answers_fingerprint(run.store)
    for one in (
        answer(("t", "q", "c"), 0),
        answer(("t", "q", "c"), 1),
        answer(("t", "q", "d"), 1),
        answer(("t", "q", "d"), None, undone=True),
        answer(("t", "q", "c"), None, "bob"),
    ):
        journal.append(one)
    manifest = execute(run, REVIEWS_STAGE, lambda _, output: write_reviews(run.store, output))
    rows = [(row["chunk_id"], row["reviewer"], row["relevance"]) for row in read(run, "reviews")]
    assert rows == [("c", "ann", 1), ("c", "bob", None)]
    assert manifest.funnel == [FunnelStep("reviews", "answers", 5, "current answers", 2, {"replaced or retracted": 3})]
    after = answers_fingerprint(run.store)
    assert before != after == answers_fingerprint(Run(run.store.url).store)


def test_the_labels_are_a_csv_that_a_build_takes(run: Run, tmp_path: Path) -> None:
    hostile = ("te,nant", 'q"1"', "=cmd()\nc")
    answers = [answer(hostile, 2), answer(hostile, 3, "bob"), answer(("t", "q", "tied"), 1)]
    answers += [answer(("t", "q", "tied"), 0, "bob"), answer(("t", "q", "no"), 0), answer(("t", "q", "skip"), None)]
    answered(run, answers)
    put(run, "review_sample", REVIEW_SAMPLE.empty())
    file = tmp_path / "labels.csv"
    file.write_text(labels_csv(run.tables("reviews", "review_sample")), encoding="utf-8", newline="")
    rows = read_labels(file, "default").to_pylist()
    said = [(row["tenant"], row["query_id"], row["chunk_id"], row["relevance"]) for row in rows]
    assert said == [("t", "q", "no", "0"), (*hostile, "2")] or said == [(*hostile, "2"), ("t", "q", "no", "0")]


def test_labels_of_the_sample_keep_their_weights(run: Run, made: Pairs, tmp_path: Path) -> None:
    sample = sampled(put_run(run, made), max_pairs=60, query_share=1)
    outside = next(key for key in made if key not in {key_of(row) for row in sample})
    half = sample[::2]
    answered(run, [*honest(made, [key_of(row) for row in half]), answer(outside, 1)])
    file = tmp_path / "labels.csv"
    file.write_text(labels_csv(run.tables("reviews", "review_sample")), encoding="utf-8", newline="")
    weights = {key_of(row): row["weight"] for row in read_labels(file, "default").to_pylist()}
    assert weights.pop(outside) == "", "it stands for no other pair"
    labelled_of = Counter(row["stratum"] for row in half)
    for row in half:
        expected = row["pairs"] / labelled_of[row["stratum"]]
        assert float(weights[key_of(row)]) == pytest.approx(expected), "an unfinished review: fewer labels, more weight"


def test_pairs_that_somebody_answered_with_what_is_known_of_them(run: Run, made: Pairs) -> None:
    sample = sampled(put_run(run, made), max_pairs=40, query_share=1)
    inside = [key_of(row) for row in sample]
    outside = next(key for key in made if key not in inside)
    answered(run, [answer(inside[0], 1), answer(inside[1], None), answer(outside, 0), answer(("gone", "q", "c"), 3)])
    pairs = ReviewedPairs.from_tables(run.tables(*NAMES), ["bm25", "lsa"])
    rows = {key: place for place, key in enumerate(sorted([inside[0], inside[1], outside, ("gone", "q", "c")]))}
    first, skipped, other, gone = (rows[key] for key in (inside[0], inside[1], outside, ("gone", "q", "c")))
    assert pairs.relevance[[first, skipped, other, gone]].tolist() == [1, -1, 0, 3]
    assert pairs.is_labelled[[first, skipped, other, gone]].tolist() == [True, False, True, True]
    assert pairs.positive[[first, skipped, other, gone]].tolist() == [True, False, False, True]
    assert (pairs.stratum[[first, skipped]] >= 0).all()
    assert (pairs.stratum[[other, gone]] == -1).all()
    assert not pairs.is_readable[gone]
    assert np.isnan(pairs.probability[gone])
    known = made[inside[0]]
    assert pairs.found_by[first].tolist() == [name in known["retrievers"] for name in ("bm25", "lsa")]
    some = pairs.take(pairs.is_labelled)
    assert len(some.tenant) == 3
    assert some.relevance.tolist() == pairs.relevance[pairs.is_labelled].tolist()
