"""The reviewers' answers as a table."""

from __future__ import annotations

from pipeline.artifacts import FunnelStep, Output, Stage, Store, key_of
from pipeline.review import Journal, standing
from pipeline.review.journal import FOLDER
from schemas.review_tables import REVIEWS

REVIEWS_STAGE = Stage("reviews", 1, (), (REVIEWS.name,))


def answers_fingerprint(store: Store) -> str:
    """Identify a run's answers: each is a file that never changes."""
    return key_of(sorted(store.sizes(FOLDER).items()))


def write_reviews(store: Store, output: Output) -> None:
    """Write each reviewer's last answer to each pair, unless it was taken back.

    Args:
        store: the run's files, with its journal.
        output: takes `reviews`.

    Raises:
        ArtifactError: a file of the journal is no answer.
    """
    answers = Journal(store).read()
    rows = standing(answers)
    output.write(REVIEWS.name, rows)
    dropped = {"replaced or taken back": len(answers) - len(rows)} if len(answers) > len(rows) else {}
    output.count(FunnelStep("reviews", "answers", len(answers), "standing answers", len(rows), dropped))
