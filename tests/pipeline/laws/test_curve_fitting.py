"""Fits find the constants that were planted, and say where constants cannot be told."""

import numpy as np
import pytest
from scipy.optimize import curve_fit
from scipy.stats import laplace

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.laws.curve_fitting import HUBER_DELTA, fit, huber
from darklode.pipeline.laws.functional_forms import JOINT, PARAMETERS, SIZE, SIZE_WITH_OFFSET, FunctionalForm, LawPoints

SIZES = 2.0 ** np.arange(7, 14)


def points(size: Doubles, value: Doubles, parameters: Doubles | None = None) -> LawPoints:
    return LawPoints(size, np.full(len(size), np.nan) if parameters is None else parameters, value)


def grid() -> tuple[Doubles, Doubles]:
    sizes, models = np.meshgrid(2.0 ** np.arange(9, 15), 4.0 ** np.arange(9, 13))
    return sizes.ravel(), models.ravel()


@pytest.mark.parametrize(
    ("form", "planted", "value"),
    [
        (SIZE, [600, 0.4, 0.8], (600 / SIZES) ** 0.4 + 0.8),
        (SIZE, [2.37e-2, 0.19, 0.01], (2.37e-2 / SIZES) ** 0.19 + 0.01),  # the paper's Table 2, MS MARCO
        (SIZE_WITH_OFFSET, [600, 0.7, 900, 0.8], (600 / (SIZES + 900)) ** 0.7 + 0.8),
    ],
)
def test_exact_points_give_the_planted_constants(form: FunctionalForm, planted: list[float], value: Doubles) -> None:
    found = fit(form, points(SIZES, value))
    assert list(found.constants.values()) == pytest.approx(planted, rel=1e-5)
    assert found.n_optima >= 1
    assert found.starts == len(form.starts(found.frame))


def test_the_law_of_model_size_is_found_with_the_papers_constants() -> None:
    models = np.geomspace(5e5, 8.7e7, 8)  # Table 1, MS MARCO
    found = fit(PARAMETERS, points(np.full(8, 5e5), (4.54e4 / models) ** 0.46 + 0.02, models))
    assert list(found.constants.values()) == pytest.approx([4.54e4, 0.46, 0.02], rel=1e-5)


@pytest.mark.slow
def test_the_joint_law_is_found() -> None:
    sizes, models = grid()
    value = ((8.2e5 / models) ** (0.57 / 1.39) + 5.2e3 / sizes) ** 1.39 + 0.03  # Eq. 10 and 11
    found = fit(JOINT, points(sizes, value, models))
    assert list(found.constants.values()) == pytest.approx([8.2e5, 0.57, 5.2e3, 1.39, 0.03], rel=1e-2)


def test_noisy_points_give_constants_within_their_errors() -> None:
    draws = np.random.default_rng(0)
    sizes = np.repeat(SIZES, 3)
    found = fit(SIZE, points(sizes, ((600 / sizes) ** 0.4 + 0.8) * np.exp(draws.normal(0, 0.005, len(sizes)))))
    errors = np.sqrt(np.diag(found.covariance()))
    off = np.abs(np.array(list(found.constants.values())) - [600, 0.4, 0.8])
    assert (errors > 0).all()
    assert (off < 4 * errors).all()


def test_an_exponent_at_its_bound_is_told_with_the_product_that_can_be() -> None:
    sizes = np.geomspace(1e5, 1e6, 8)
    found = fit(SIZE, points(sizes, (2e6 / sizes) ** 6.5))
    (said,) = found.form.bounds_hit(found.at, found.frame)
    assert found.constants["beta"] == pytest.approx(5, rel=1e-2)
    assert said.startswith("beta is at its bound 5: only beta·B = ")


def test_one_wild_point_moves_little() -> None:
    value = (600 / SIZES) ** 0.4 + 0.8
    value[2] *= 1.5
    assert fit(SIZE, points(SIZES, value)).constants["beta"] == pytest.approx(0.4, rel=0.01)


def test_too_few_points_have_no_criterion_and_no_covariance() -> None:
    found = fit(SIZE, points(SIZES[:3], (600 / SIZES[:3]) ** 0.4 + 0.8))
    assert np.isinf(found.aicc)
    assert np.isnan(found.covariance()).all()


def test_huber_is_a_sum() -> None:
    one = np.array([HUBER_DELTA / 2, 5 * HUBER_DELTA])
    assert huber(one) == pytest.approx(0.125 + 4.5)
    assert huber(np.tile(one, 3)) == pytest.approx(3 * huber(one))


def noisy(noise: float) -> LawPoints:
    sizes = np.repeat(SIZES, 2)
    drawn = np.random.default_rng(1).normal(0, noise, len(sizes))
    return points(sizes, ((600 / sizes) ** 0.4 + 0.8) * np.exp(drawn))


def test_the_criterion_is_that_of_the_likeliest_laplace_distribution() -> None:
    """AIC is 2k − 2 ln L; the correction for n points 2k(k + 1) / (n − k − 1), k with the distribution's scale."""
    found = fit(SIZE, noisy(0.01))
    n, k = len(found.points), 3 + 1
    likelihood = laplace.logpdf(found.residuals, scale=np.abs(found.residuals).mean()).sum()
    assert found.aicc == pytest.approx(2 * k - 2 * likelihood + 2 * k * (k + 1) / (n - k - 1))


def test_the_covariance_is_that_of_scipys_least_squares() -> None:
    given = noisy(1e-4)  # so little that Huber's loss is a square
    found = fit(SIZE, given)
    start = list(found.constants.values())
    _, wanted = curve_fit(
        lambda size, scale, beta, delta: np.log((scale / size) ** beta + delta),
        given.size, np.log(given.value), p0=start,
    )  # fmt: skip
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance())), np.sqrt(np.diag(wanted)), rtol=0.02)
