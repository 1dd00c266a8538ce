"""The two regressions against scikit-learn, and the learner that joins them."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct
from sklearn.linear_model import LogisticRegression

import darklode.pipeline.judge.adaptive.learner
from darklode.pipeline.judge.adaptive.learner import L2_PENALTY, ActiveLearner, fit_kernel, fit_linear, sigmoid
from helpers.made_evidence import made

DICE = np.random.default_rng(3)


def test_the_linear_fit_is_a_ridge_logistic_regression() -> None:
    features = np.column_stack([np.ones(400), DICE.normal(size=(400, 3))])
    labels = (DICE.random(400) < sigmoid(features @ np.array([-1.0, 2.0, 0.0, -0.5]))).astype(float)
    reference = LogisticRegression(C=1 / L2_PENALTY, tol=1e-8).fit(features[:, 1:], labels)
    found = fit_linear(features, labels)
    assert found[1:] == pytest.approx(reference.coef_[0], abs=1e-2)
    assert found[0] == pytest.approx(reference.intercept_[0], abs=1e-2)


def test_the_kernel_fit_is_a_gaussian_process_classifier() -> None:
    points = DICE.normal(size=(60, 2))
    labels = (points[:, 0] + DICE.normal(size=60) > 0).astype(float)
    kernel = ConstantKernel(1.0, "fixed") + ConstantKernel(2.0, "fixed") * DotProduct(0, "fixed")
    reference = GaussianProcessClassifier(kernel, optimizer=None).fit(points, labels)
    cells = kernel(points)
    latent = cells @ fit_kernel(cells, labels, np.zeros(60))
    assert latent == pytest.approx(cells @ (labels - reference.base_estimator_.pi_), abs=5e-2)


def test_without_verdicts_the_offset_stands() -> None:
    assert fit_kernel(np.empty((0, 0)), np.empty(0), np.empty(0)).shape == (0,)


def test_kernels_computed_anew_give_the_same_as_kept_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, labels = made(6)
    labels[1::2] = np.nan
    kept = ActiveLearner(evidence)
    expected = [kept.fit(labels), kept.fit(labels)]
    monkeypatch.setattr(darklode.pipeline.judge.adaptive.learner, "MAX_KERNEL_CELLS", 0)
    anew = ActiveLearner(evidence)
    assert np.array_equal(expected, [anew.fit(labels), anew.fit(labels)])
