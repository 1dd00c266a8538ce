"""Reviewers' answers and unjudged pairs, for every command whose figures they correct."""

from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.validate.labels import REVIEWS_STAGE, answers_fingerprint, write_reviews
from darklode.pipeline.validate.review.journal import ANSWERS_FOLDER
from darklode.pipeline.validate.sample import REVIEW_SAMPLE_STAGE
from darklode.schemas.settings import Settings


def is_reviewed(run: Run) -> bool:
    """Whether people answered for pairs of a sample of the run, whether or not they were validated."""
    return REVIEW_SAMPLE_STAGE.name in run.parts() and bool(run.store.sizes(ANSWERS_FOLDER))


def reviews_step(run: Run) -> Step:
    """The step that writes the current answers as the table `reviews`."""
    return Step(
        REVIEWS_STAGE,
        call(write_reviews),
        lambda: {"the reviewers' answers": answers_fingerprint(run.store)},
        source=run.store,
    )


def unjudged_tables(settings: Settings) -> list[str]:
    """Tables with the pairs that the judge skipped, which only adaptive judging writes."""
    return ["unjudged"] if settings.judge.strategy == "adaptive" else []
