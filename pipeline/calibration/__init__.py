"""The judge against human labels: how far they agree, and what its probabilities are worth."""

from pipeline.calibration.compared import MIN_LABELS, MIN_OF_EACH
from pipeline.calibration.stage import CALIBRATE, calibrate, fitted_thresholds

__all__ = ["CALIBRATE", "MIN_LABELS", "MIN_OF_EACH", "calibrate", "fitted_thresholds"]
