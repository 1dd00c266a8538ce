"""Answers of reviewers that commands read."""

from datetime import UTC, datetime

from darklode.flows.config import load_settings
from darklode.flows.jobs.validate_benchmark import draw_sample
from darklode.flows.reviews import is_reviewed, reviews_step
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.validate.review.journal import AnswerJournal, ReviewAnswer
from helpers.reviewed_run import key_of, pairs, put_run
from helpers.runs import read


def test_answers_are_read_again_when_there_are_more(run: Run) -> None:
    put_run(run, pairs({"a": 10}))
    assert not is_reviewed(run)
    draw_sample(run, load_settings(assignments=["review.max_pairs=20"]))
    assert not is_reviewed(run)
    journal = AnswerJournal(run.store)
    for number, row in enumerate(read(run, "review_sample")[:2], 1):
        journal.append(ReviewAnswer(*key_of(row), "ann", 1, datetime(2026, 1, 1, tzinfo=UTC)))
        assert is_reviewed(run)
        step = reviews_step(run)
        plan = step.plan(run)
        assert not plan.is_up_to_date
        run.execute(plan, step.execute)
        assert len(read(run, "reviews")) == number
    assert reviews_step(run).plan(run).is_up_to_date
