"""When a trial has collapsed: the score falls while the loss falls."""

import pytest

from darklode.pipeline.train.fit.eval_point import EvalPoint, has_collapsed


def points(scores: list[float], losses: list[float | None]) -> list[EvalPoint]:
    pairs = zip(scores, losses, strict=True)
    return [EvalPoint(step, loss, score, None, 1.0, 0.0, 1.0) for step, (score, loss) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("scores", "losses", "collapsed"),
    [
        ([0.5, 0.4, 0.3, 0.2], [None, 3.0, 2.0, 1.0], True),
        ([0.5, 0.4, 0.4, 0.2], [None, 3.0, 2.0, 1.0], False),
        ([0.5, 0.4, 0.3, 0.2], [None, 1.0, 2.0, 3.0], False),
        ([0.5, 0.4, 0.3], [None, 3.0, 2.0], False),
        ([0.1, 0.5, 0.4, 0.3, 0.2], [None, 9.0, 3.0, 2.0, 1.0], True),
    ],
    ids=["falls", "does not fall each time", "loss rises", "too few", "only the last count"],
)
def test_a_collapse_is_a_falling_score_at_a_falling_loss(
    scores: list[float], losses: list[float | None], collapsed: bool
) -> None:
    assert has_collapsed(points(scores, losses)) is collapsed
