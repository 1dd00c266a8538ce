"""When a review may stop: the sentence about its interval."""

import math

import pytest

from darklode.pipeline.validate.review.stopping import LABELS_PER_UPDATE, StoppingRule


class FixedFigure:
    """A figure with a half width that the test sets."""

    name = "precision"

    def __init__(self, value: float) -> None:
        self.value = value
        self.n_computed = 0

    def half_width(self, labels: dict[str, float]) -> float:
        self.n_computed += 1
        return self.value


@pytest.mark.parametrize(
    ("half_width", "sentence"),
    [
        (0.0501, "precision: ± .051, goal ± .05"),
        (0.05, "precision: ± .05 reached (± .05), you can stop"),
        (0.0291, "precision: ± .05 reached (± .03), you can stop"),
        (math.nan, "precision: too few labels for an interval; goal ± .05"),
    ],
)
def test_the_sentence_says_when_to_stop(half_width: float, sentence: str) -> None:
    assert StoppingRule(FixedFigure(half_width)).sentence({"p": 1.0}) == sentence


def test_another_goal_and_no_figure() -> None:
    assert "± .03 reached" in StoppingRule(FixedFigure(0.029), 0.03).sentence({"p": 1.0})
    assert StoppingRule(None).sentence({"p": 1.0}) == ""


def test_the_interval_is_computed_every_few_labels() -> None:
    figure = FixedFigure(0.1)
    rule = StoppingRule(figure)
    for n in range(3 * LABELS_PER_UPDATE):
        rule.sentence({f"p{number}": 1.0 for number in range(n)})
    assert figure.n_computed == 3
