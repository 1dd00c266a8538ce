"""Sentences about laws and plans."""

import pytest

from darklode.pipeline.laws import format as sentences


@pytest.mark.parametrize(
    ("requirement", "n_near_chance", "sentence"),
    [
        (None, 0, "no point is left to fit"),
        (None, 2, "no point is left to fit; 2 points near chance are left out"),
        (("A/D^α + δ", 3), 0, "A/D^α + δ needs 6 points at 4 places besides the largest; there are 5 at 3"),
    ],
)
def test_too_few_points_name_what_is_missing(
    requirement: tuple[str, int] | None, n_near_chance: int, sentence: str
) -> None:
    assert sentences.too_few_points(requirement, 5, 3, n_near_chance) == sentence


def test_a_naive_forecast_is_named_if_it_was_better() -> None:
    assert sentences.missed_fitted(0.041).endswith("the largest fitted size is missed by 4.1%")
    assert sentences.missed_fitted(0.041, 0.012).endswith("and by 1.2% by the forecast that nothing changes")


def test_sizes_to_train_first_double() -> None:
    assert sentences.first_labels("too few sizes", 300, 100, 2).endswith(
        "label 300 more queries, and train at sizes 200, 400 first"
    )
    assert sentences.first_labels("too few", 100, 100, 0).endswith("label 100 more queries, to size 200, and run again")


def test_an_amount_beyond_the_law_has_no_number() -> None:
    assert sentences.labels_and_price((None, None, None), None, 4000) == "more than 4,000 more queries"


def test_a_budget_far_outside_the_measured_sizes_is_not_to_be_trusted() -> None:
    near = sentences.budget(100, 0.5, (0.01, 0.0, 0.02), is_near=True)
    far = sentences.budget(100, 0.5, (0.01, 0.0, 0.02), is_near=False)
    assert far == near + sentences.BEYOND_MEASURED
