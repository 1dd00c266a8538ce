"""How a stage's cost grows: planted constants come back, and what cannot be fitted is refused."""

import numpy as np
import pytest

from darklode.pipeline.scale.growth import fit_growth, local_exponent

SIZES = [500.0, 2_000.0, 8_000.0, 32_000.0, 128_000.0]


@pytest.mark.parametrize("exponent", [0.6, 1.0, 1.2, 1.9])
@pytest.mark.parametrize("fixed", [0.001, 0.4])
def test_planted_constants_come_back(exponent: float, fixed: float) -> None:
    costs = [fixed + 3e-4 * size**exponent for size in SIZES]
    found = fit_growth(SIZES, costs)
    assert found.exponent == pytest.approx(exponent, abs=0.01)
    assert found.cost_at(1e6) == pytest.approx(fixed + 3e-4 * 1e6**exponent, rel=0.03)


def test_the_interval_holds_the_truth_in_noise_and_grows_with_the_distance() -> None:
    held, truth = 0, 0.2 + 1e-4 * 1e6
    for seed in range(60):
        noise = np.exp(np.random.default_rng(seed).normal(0, 0.05, len(SIZES)))
        found = fit_growth(SIZES, [(0.2 + 1e-4 * size) * one for size, one in zip(SIZES, noise, strict=True)])
        low, high = found.span(1e6)
        held += low <= truth <= high
        near = found.span(128_000.0)
        assert high / low > near[1] / near[0]
        assert found.exponent_span[0] < found.exponent < found.exponent_span[1]
    assert held >= 51, "a 95 % interval of which fewer than 85 % hold the truth"


def test_what_never_grows_has_no_wide_interval() -> None:
    found = fit_growth(SIZES, [0.5, 0.5, 0.5, 0.5, 0.5])
    assert found.cost_at(1e7) == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize(
    ("sizes", "costs"),
    [([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), ([1.0, 1.0, 2.0, 3.0], [1.0] * 4), ([1.0, 2.0, 3.0, 4.0], [0.0, 1, 2, 3])],
)
def test_too_little_to_fit_is_refused(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"sizes|above 0"):
        fit_growth(sizes, costs)


def test_the_last_step_has_an_exponent() -> None:
    assert local_exponent([1.0, 10.0, 40.0], [9.0, 2.0, 8.0]) == pytest.approx(1.0)
